"""A shop: customers, products, orders and order items."""

import random

from apps.gym.environments.text_to_sql.databases.protocol import (
    Database,
    Phrase,
    QuestionKind,
    Rows,
    day,
    months,
    people,
)
from apps.gym.environments.wordlists import CITIES, FIRST_NAMES, LAST_NAMES

_CITIES = CITIES[:5]
_CATEGORIES = ("garden", "kitchen", "office", "sports", "toys")
_THINGS = ("ball", "basket", "board", "box", "clock", "cup", "holder", "lamp", "mat", "rack", "set", "stand")

SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT, joined_on TEXT);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, category TEXT, price_cents INTEGER);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers, ordered_on TEXT);
CREATE TABLE order_items (order_id INTEGER REFERENCES orders, product_id INTEGER REFERENCES products, quantity INTEGER);
"""


def _fill(dice: random.Random) -> dict[str, Rows]:
    names = people(dice, FIRST_NAMES, LAST_NAMES, 36)
    products = dice.sample([f"{category} {thing}" for category in _CATEGORIES for thing in _THINGS], 28)
    orders = dice.randint(130, 150)
    pairs = {(dice.randint(1, orders), dice.randint(1, 26)) for _ in range(380)}
    return {
        "customers": [(at + 1, name, dice.choice(_CITIES), day(dice, 2019, 2024)) for at, name in enumerate(names)],
        "products": [(at + 1, name, name.split()[0], dice.randint(15, 60) * 100) for at, name in enumerate(products)],
        # The last four customers never order, and the last two products are never ordered.
        "orders": [(at + 1, dice.randint(1, 32), day(dice, 2023, 2025)) for at in range(orders)],
        "order_items": [(order, product, dice.randint(1, 9)) for order, product in sorted(pairs)],
    }


_YEARS = range(2023, 2026)
_PERIOD = months(2023, 2025, "o.ordered_on")
_ORDERED = (
    "SELECT o.customer_id FROM orders o JOIN order_items i ON i.order_id = o.id JOIN products p ON "
    "p.id = i.product_id WHERE {period.sql} AND p.category ="
)

_LEVEL_1 = (
    QuestionKind(
        "Which customers from {city} joined in or after {year}? Give their names.",
        "SELECT name FROM customers WHERE city = '{city}' AND joined_on >= '{year}-01-01'",
        {"city": _CITIES, "year": range(2020, 2024)},
    ),
    QuestionKind(
        "Which products of the category {category} cost less than {euros} euros? Give name and price in cents.",
        "SELECT name, price_cents FROM products WHERE category = '{category}' AND price_cents < {euros}00",
        {"category": _CATEGORIES, "euros": range(18, 59)},
    ),
    QuestionKind(
        "How many orders were placed in month {month} of {year}?",
        "SELECT COUNT(*) FROM orders WHERE ordered_on LIKE '{year}-{month:02}-%'",
        {"year": _YEARS, "month": range(1, 13)},
    ),
    QuestionKind(
        "Name the {count} {way.text} products of the category {category}, in that order; of equal prices, by name.",
        "SELECT name FROM products WHERE category = '{category}' ORDER BY price_cents {way.sql}, name LIMIT {count}",
        {
            "count": range(2, 6),
            "category": _CATEGORIES,
            "way": (Phrase("most expensive", "DESC"), Phrase("cheapest", "ASC")),
        },
        ordered=True,
    ),
)
_LEVEL_2 = (
    QuestionKind(
        "In which cities live customers who together placed at least {least} orders in {year}? Give city and number of "
        "orders.",
        "SELECT c.city, COUNT(*) FROM orders o JOIN customers c ON c.id = o.customer_id "
        "WHERE o.ordered_on LIKE '{year}-%' GROUP BY c.city HAVING COUNT(*) >= {least}",
        {"year": _YEARS, "least": range(2, 6)},
    ),
    QuestionKind(
        "How many pieces of each product of the category {category} did customers from {city} order {period.text}? "
        "Give product name and number, only of products that they ordered.",
        "SELECT p.name, SUM(i.quantity) FROM order_items i JOIN products p ON p.id = i.product_id "
        "JOIN orders o ON o.id = i.order_id JOIN customers c ON c.id = o.customer_id "
        "WHERE p.category = '{category}' AND c.city = '{city}' AND {period.sql} GROUP BY p.id",
        {"category": _CATEGORIES, "city": _CITIES, "period": _PERIOD},
    ),
    QuestionKind(
        "Which customers ordered at least {least} pieces of one product of the category {category} at once in {year}? "
        "Give each name once.",
        "SELECT DISTINCT c.name FROM customers c JOIN orders o ON o.customer_id = c.id "
        "JOIN order_items i ON i.order_id = o.id JOIN products p ON p.id = i.product_id "
        "WHERE p.category = '{category}' AND i.quantity >= {least} AND o.ordered_on LIKE '{year}-%'",
        {"category": _CATEGORIES, "year": _YEARS, "least": range(2, 7)},
    ),
)
_LEVEL_3 = (
    QuestionKind(
        "Which customers from {city} ordered nothing of the category {category} {period.text}? Give their names.",
        "SELECT c.name FROM customers c WHERE c.city = '{city}' AND NOT EXISTS (SELECT 1 FROM orders o "
        "JOIN order_items i ON i.order_id = o.id JOIN products p ON p.id = i.product_id "
        "WHERE o.customer_id = c.id AND p.category = '{category}' AND {period.sql})",
        {"category": _CATEGORIES, "city": _CITIES, "period": _PERIOD},
    ),
    QuestionKind(
        "Of the orders from {city} {period.text}, which had a higher value than the average order of all times and "
        "places? Give the ids of the orders. An order without items has no value and does not count.",
        "WITH worth AS (SELECT i.order_id, SUM(i.quantity * p.price_cents) AS cents FROM order_items i "
        "JOIN products p ON p.id = i.product_id GROUP BY i.order_id) "
        "SELECT o.id FROM orders o JOIN customers c ON c.id = o.customer_id JOIN worth w ON w.order_id = o.id "
        "WHERE {period.sql} AND c.city = '{city}' AND w.cents > (SELECT AVG(cents) FROM worth)",
        {"city": _CITIES, "period": _PERIOD},
    ),
    QuestionKind(
        "For each category, which product had the highest number of pieces in the orders from {city} {period.text}? "
        "Give category, product name and number of pieces; of equal numbers, the product whose name comes first. Leave "
        "out categories without orders.",
        "SELECT category, name, pieces FROM (SELECT p.category, p.name, SUM(i.quantity) AS pieces, ROW_NUMBER() OVER "
        "(PARTITION BY p.category ORDER BY SUM(i.quantity) DESC, p.name) AS place FROM order_items i "
        "JOIN products p ON p.id = i.product_id JOIN orders o ON o.id = i.order_id "
        "JOIN customers c ON c.id = o.customer_id "
        "WHERE {period.sql} AND c.city = '{city}' GROUP BY p.id) WHERE place = 1",
        {"city": _CITIES, "period": months(2023, 2025, "o.ordered_on", least=2)},
    ),
    QuestionKind(
        "Which customers ordered something of the category {category[0]} and nothing of the category {category[1]} "
        "{period.text}? Give their names.",
        f"SELECT name FROM customers WHERE id IN ({_ORDERED} '{{category[0]}}') AND "
        f"id NOT IN ({_ORDERED} '{{category[1]}}')",
        {"category": lambda dice: dice.sample(_CATEGORIES, 2), "period": _PERIOD},
    ),
)

DATABASE = Database(about="a shop", schema=SCHEMA, fill=_fill, questions={1: _LEVEL_1, 2: _LEVEL_2, 3: _LEVEL_3})
