"""Collections: plan, follow, steer, compare, import and archive them."""
