"""Rules of blackjack (hit or stand, the dealer stands on every 17) and basic strategy."""

from typing import Literal, NamedTuple

Action = Literal["hit", "stand"]
ACTIONS: tuple[Action, ...] = ("hit", "stand")
RANKS = ("A", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K")
FULL = 21
_DEALER_STANDS = 17


class Hand(NamedTuple):
    """The value of some cards. `soft` is True if an ace counts eleven."""

    total: int
    soft: bool


def count(cards: list[str]) -> Hand:
    values = [11 if card == "A" else int(card) if card.isdigit() else 10 for card in cards]
    total, aces = sum(values), cards.count("A")
    while total > FULL and aces:
        total, aces = total - 10, aces - 1
    return Hand(total, aces > 0)


def basic_strategy(cards: list[str], shown: str) -> Action:
    """Return the best action on average given the dealer's open card, without doubling or splitting."""
    hand, dealer = count(cards), count([shown]).total
    if hand.soft:
        stands = hand.total >= 19 or (hand.total == 18 and dealer <= 8)
    elif hand.total == 12:
        stands = dealer in (4, 5, 6)
    else:
        stands = hand.total >= 17 or (hand.total >= 13 and dealer <= 6)
    return "stand" if stands else "hit"


class Round:
    """One round with cards in a fixed order: the player's two, the dealer's open and hidden card, then the pile."""

    def __init__(self, cards: list[str]) -> None:
        self.player = cards[:2]
        self.dealer = cards[2:4]
        self._pile = cards[4:]
        self.result: int | None = None
        """1 won, 0 draw, -1 lost; None during the round."""

    @property
    def shown(self) -> str:
        return self.dealer[0]

    def act(self, action: Action) -> None:
        """Play one action. At 21 the player stands automatically."""
        if action == "hit":
            self.player.append(self._draw())
            total = count(self.player).total
            if total > FULL:
                self.result = -1
            if total < FULL:
                return
        if self.result is None:
            self._end()

    def _end(self) -> None:
        while count(self.dealer).total < _DEALER_STANDS:
            self.dealer.append(self._draw())
        dealer, player = count(self.dealer).total, count(self.player).total
        self.result = 1 if dealer > FULL or player > dealer else -1 if player < dealer else 0

    def _draw(self) -> str:
        # A generated round has enough cards, but an uploaded row may not.
        return self._pile.pop(0) if self._pile else "10"
