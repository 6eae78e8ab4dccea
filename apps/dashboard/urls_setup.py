"""Addresses of what is set up: access, datasets, environments, models, agents."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
