"""Collections: plan, steer, follow, import, stream and measure them."""
