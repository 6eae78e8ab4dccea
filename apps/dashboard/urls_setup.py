"""Addresses of what is set up: access, datasets, environments, models, agents."""

from django.urls import URLPattern, path

from apps.dashboard.views import access, account, home

urlpatterns: list[URLPattern] = [
    path("", home.home, name="home"),
    path("sign-in/", access.sign_in, name="sign_in"),
    path("sign-in/<str:token>/", access.sign_in_link, name="sign_in_link"),
    path("sign-out/", access.sign_out, name="sign_out"),
    path("theme/", access.theme, name="theme"),
    path("account/", account.account, name="account"),
]
