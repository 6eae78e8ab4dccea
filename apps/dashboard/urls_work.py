"""Addresses of the work itself: collections, rollouts, pairs, exports, workers."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
