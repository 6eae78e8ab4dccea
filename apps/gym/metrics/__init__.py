"""Figures of rewards and reviews: plain numbers in, plain numbers out."""
