"""Some rounds of blackjack, with a result to reach that good play reaches."""
