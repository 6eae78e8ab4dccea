"""Collections: plan, control, follow, import, stream and measure."""
