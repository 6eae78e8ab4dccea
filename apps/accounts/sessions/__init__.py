"""Sessions of signed-in browsers: device, address and last use, and how they end."""
