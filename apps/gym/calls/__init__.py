"""Call other servers within limits of addresses, rate, time and memory."""
