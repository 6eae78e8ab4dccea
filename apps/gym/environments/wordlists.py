"""Names of people, places and months for generated tasks."""

_FIRST = (
    "Amara Bela Chidi Dana Emil Farah Goran Hiro Ines Jonas Kira Luca Mina Noor Otto Petra Quentin Rafa Sofia Tariq "
    "Uma Viktor Wanda Yara Zeno"
)
_LAST = (
    "Abara Bakshi Castel Dorn Eklund Ferro Grabow Holt Ivarsen Jansky Kovar Lindt Moreau Novak Okoro Pinto Quist Roth "
    "Sandoval Tamm Ulrich Varga Weiss Yilmaz Zeman"
)
_CITIES = "Brno Cork Dakar Esbjerg Faro Ghent Hobart Izmir Jaffa Kyoto Lima Malmo Nantes Oulu Porto Quito Riga"
_MONTHS = "January February March April May June July August September October November December"

FIRST_NAMES = _FIRST.split()
LAST_NAMES = _LAST.split()
CITIES = _CITIES.split()
MONTHS = _MONTHS.split()
