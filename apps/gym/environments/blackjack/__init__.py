"""Rounds of blackjack, with a target result that good play reaches."""
