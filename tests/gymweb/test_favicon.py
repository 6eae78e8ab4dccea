from django.contrib.staticfiles import finders
from django.test import Client


def test_the_icon_is_found_where_browsers_look_for_it():
    answer = Client().get("/favicon.ico")
    assert (answer.status_code, answer["Location"]) == (302, "/static/img/gymweb.svg")
    assert finders.find("img/gymweb.svg") is not None
