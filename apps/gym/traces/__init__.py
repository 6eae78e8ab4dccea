"""What an attempt leaves behind: events, conversation items, and the shapes made of them."""
