"""Possible secrets and their properties. The scripted user answers only from this table."""

PROPERTIES: dict[str, tuple[str, str]] = {
    "animal": ("Is it an animal?", r"animals?|creature"),
    "mammal": ("Is it a mammal?", r"mammals?"),
    "bird": ("Is it a bird?", r"birds?"),
    "insect": ("Is it an insect?", r"insects?|bugs?"),
    "fur": ("Does it have fur?", r"fur|furry|hairy"),
    "legs": ("Does it have four legs?", r"(?:four|4) legs"),
    "flies": ("Can it fly?", r"fly|flies|flying"),
    "water": ("Is it found in water?", r"water|sea|swims?|ocean"),
    "pet": ("Is it kept as a pet?", r"pets?"),
    "farm": ("Is it found on a farm?", r"farms?"),
    "plant": ("Is it a plant, or a part of one?", r"plants?"),
    "eaten": ("Is it eaten?", r"eat|eaten|edible|food"),
    "sweet": ("Is it sweet?", r"sweet"),
    "tool": ("Is it used for work?", r"tools?|for work"),
    "vehicle": ("Does it carry people?", r"carr(?:y|ies)|vehicles?|ride|transport"),
    "wheels": ("Does it have wheels?", r"wheels?"),
    "furniture": ("Is it furniture?", r"furniture"),
    "worn": ("Is it worn on the body?", r"worn|wear|clothing|clothes"),
    "music": ("Does it make music?", r"music|musical|instruments?"),
    "electric": ("Does it need electricity?", r"electric|electricity|batter(?:y|ies)"),
    "metal": ("Is it mostly made of metal?", r"metal|iron|steel"),
    "wood": ("Is it mostly made of wood?", r"wood|wooden"),
    "glass": ("Is it mostly made of glass?", r"glass"),
    "large": ("Is it larger than a person?", r"larger|bigger|taller|large|big"),
    "hand": ("Does it fit into a hand?", r"hand|palm|small"),
    "kitchen": ("Is it found in a kitchen?", r"kitchens?"),
    "outdoors": ("Is it mostly found outdoors?", r"outdoors?|outside"),
    "round": ("Is it round?", r"round|ball-shaped"),
    "sharp": ("Is it sharp?", r"sharp|pointed"),
    "red": ("Is it usually red?", r"red"),
    "green": ("Is it usually green?", r"green"),
    "white": ("Is it usually white?", r"white"),
    "read": ("Is it for reading or writing?", r"read|reading|writ(?:e|ing)"),
    "holds": ("Does it hold liquids?", r"liquids?|drinks?"),
    "cold": ("Is it cold?", r"cold|icy"),
}
"""For each property, a question that the user understands, and the words that identify it."""

_TABLE = """
cat: animal mammal fur legs pet
dog: animal mammal fur legs pet farm
horse: animal mammal fur legs farm large vehicle outdoors
cow: animal mammal fur legs farm large eaten outdoors
pig: animal mammal legs farm eaten
sheep: animal mammal fur legs farm white eaten outdoors
goat: animal mammal fur legs farm outdoors
rabbit: animal mammal fur legs pet farm eaten
hamster: animal mammal fur legs pet hand
mouse: animal mammal fur legs hand
elephant: animal mammal legs large outdoors
lion: animal mammal fur legs large outdoors sharp
wolf: animal mammal fur legs outdoors sharp
polar bear: animal mammal fur legs large outdoors white water cold
camel: animal mammal fur legs large outdoors vehicle
whale: animal mammal water large outdoors
dolphin: animal mammal water outdoors
bat: animal mammal fur flies hand outdoors
hen: animal bird farm eaten outdoors
duck: animal bird farm eaten water flies outdoors
swan: animal bird water flies white outdoors
owl: animal bird flies outdoors
parrot: animal bird flies pet green
robin: animal bird flies hand outdoors red
penguin: animal bird water outdoors cold
ostrich: animal bird large outdoors
salmon: animal water eaten outdoors
shark: animal water large outdoors sharp
goldfish: animal water pet hand red
crab: animal water eaten hand outdoors red
frog: animal legs water hand outdoors green
tortoise: animal legs pet outdoors
crocodile: animal legs water large outdoors green sharp
snake: animal outdoors
snail: animal hand outdoors round
bee: animal insect flies hand farm outdoors
ant: animal insect hand outdoors
ladybird: animal insect flies hand outdoors red round
wasp: animal insect flies hand outdoors sharp
oak: plant large outdoors wood
cactus: plant outdoors green sharp
rose: plant outdoors red sharp hand
daisy: plant outdoors white hand
grass: plant outdoors green farm
seaweed: plant outdoors green water eaten
apple: plant eaten sweet hand round red farm
cherry: plant eaten sweet hand round red
lemon: plant eaten hand kitchen
banana: plant eaten sweet hand
grape: plant eaten sweet hand round green
watermelon: plant eaten sweet round green farm
potato: plant eaten hand kitchen farm
tomato: plant eaten hand kitchen round red farm
pea: plant eaten hand kitchen round green
cabbage: plant eaten kitchen round green farm
garlic: plant eaten hand kitchen white
pumpkin: plant eaten round farm
chilli: plant eaten hand kitchen red sharp
bread: eaten kitchen
cheese: eaten kitchen farm
egg: eaten kitchen hand white round farm
honey: eaten kitchen sweet farm
sugar: eaten kitchen sweet white
ice cream: eaten kitchen sweet cold
chocolate: eaten sweet hand
pizza: eaten kitchen round
car: vehicle wheels metal large outdoors
bus: vehicle wheels metal large outdoors red
bicycle: vehicle wheels metal outdoors
tram: vehicle wheels metal large outdoors electric
aeroplane: vehicle wheels metal large outdoors flies
helicopter: vehicle metal large outdoors flies
rowing boat: vehicle wood large outdoors water
submarine: vehicle metal large water
sledge: vehicle wood outdoors cold
tractor: vehicle wheels metal large outdoors farm tool
wheelbarrow: wheels metal outdoors farm tool
chair: furniture wood legs
table: furniture wood legs large kitchen
wardrobe: furniture wood large
sofa: furniture large
office chair: furniture wheels
bookcase: furniture wood large read
mirror: furniture glass
hat: worn round
glove: worn hand
wedding ring: worn hand metal round
boot: worn outdoors
raincoat: worn
spectacles: worn glass hand read
wristwatch: worn hand metal round electric
helmet: worn round outdoors
crown: worn metal round
headphones: worn music electric
guitar: music wood
piano: music wood large furniture
trumpet: music metal
flute: music wood hand
drum: music round
radio: music electric
hammer: tool metal
saw: tool metal sharp
axe: tool metal wood sharp outdoors
screwdriver: tool metal hand
drill: tool metal electric sharp
rake: tool wood outdoors farm
ladder: tool wood large
scissors: tool metal sharp hand
needle: metal sharp hand
computer: tool electric read
knife: kitchen metal sharp tool
fork: kitchen metal sharp hand
spoon: kitchen metal hand
frying pan: kitchen metal round tool
kettle: kitchen metal electric holds
oven: kitchen metal electric
refrigerator: kitchen metal electric large cold white
wine glass: kitchen glass hand holds
bottle: kitchen glass holds
jam jar: kitchen glass hand holds round
plate: kitchen round white
cup: kitchen hand holds white round
rolling pin: kitchen wood round tool
chopping board: kitchen wood
lamp: electric
light bulb: electric glass hand round
telephone: electric hand
television: electric large
torch: electric hand metal
book: read
newspaper: read white
pencil: read hand wood sharp
pen: read hand
letter: read hand white
football: round outdoors white
marble: round hand glass
snowman: round outdoors white cold
icicle: outdoors cold sharp water
window: glass large
key: metal hand
coin: metal hand round
anchor: metal water outdoors large
bridge: outdoors large water metal vehicle
fire engine: vehicle wheels metal large outdoors red water tool
swimming pool: outdoors large water holds
bucket: holds outdoors farm
"""

THINGS: dict[str, frozenset[str]] = {
    name: frozenset(listed.split())
    for name, _, listed in (line.partition(": ") for line in _TABLE.strip().splitlines())
}
