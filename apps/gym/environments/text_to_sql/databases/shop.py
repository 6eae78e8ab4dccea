"""A shop: customers, products, orders and order items."""

import random

from apps.gym.environments.text_to_sql.databases.protocol import Database, Question, Rows, day, months, people
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


def _customers_of(dice: random.Random) -> Question:
    city, year = dice.choice(_CITIES), dice.randint(2020, 2023)
    return Question(
        f"Which customers from {city} joined in or after {year}? Give their names.",
        f"SELECT name FROM customers WHERE city = '{city}' AND joined_on >= '{year}-01-01'",
    )


def _products_below(dice: random.Random) -> Question:
    category, price = dice.choice(_CATEGORIES), dice.randint(18, 58)
    return Question(
        f"Which products of the category {category} cost less than {price} euros? Give name and price in cents.",
        f"SELECT name, price_cents FROM products WHERE category = '{category}' AND price_cents < {price * 100}",
    )


def _orders_in(dice: random.Random) -> Question:
    year, month = dice.randint(2023, 2025), dice.randint(1, 12)
    return Question(
        f"How many orders were placed in month {month} of {year}?",
        f"SELECT COUNT(*) FROM orders WHERE ordered_on LIKE '{year}-{month:02}-%'",
    )


def _dearest(dice: random.Random) -> Question:
    count, category = dice.randint(2, 5), dice.choice(_CATEGORIES)
    way, order = dice.choice((("most expensive", "DESC"), ("cheapest", "ASC")))
    return Question(
        f"Name the {count} {way} products of the category {category}, in that order; of equal prices, by name.",
        f"SELECT name FROM products WHERE category = '{category}' ORDER BY price_cents {order}, name LIMIT {count}",
        ordered=True,
    )


def _city_orders(dice: random.Random) -> Question:
    year = dice.randint(2023, 2025)
    least = dice.randint(2, 5)
    return Question(
        f"In which cities live customers who together placed at least {least} orders in {year}? Give city and "
        "number of "
        "orders.",
        "SELECT c.city, COUNT(*) FROM orders o JOIN customers c ON c.id = o.customer_id "
        f"WHERE o.ordered_on LIKE '{year}-%' GROUP BY c.city HAVING COUNT(*) >= {least}",
    )


def _sold(dice: random.Random) -> Question:
    category, city = dice.choice(_CATEGORIES), dice.choice(_CITIES)
    told, condition = months(dice, 2023, 2025, "o.ordered_on")
    return Question(
        f"How many pieces of each product of the category {category} did customers from {city} order {told}? Give "
        "product name and number, only of products that they ordered.",
        "SELECT p.name, SUM(i.quantity) FROM order_items i JOIN products p ON p.id = i.product_id "
        "JOIN orders o ON o.id = i.order_id JOIN customers c ON c.id = o.customer_id "
        f"WHERE p.category = '{category}' AND c.city = '{city}' AND {condition} GROUP BY p.id",
    )


def _bought(dice: random.Random) -> Question:
    category, year = dice.choice(_CATEGORIES), dice.randint(2023, 2025)
    least = dice.randint(2, 6)
    return Question(
        f"Which customers ordered at least {least} pieces of one product of the category {category} at once in {year}? "
        "Give each name once.",
        "SELECT DISTINCT c.name FROM customers c JOIN orders o ON o.customer_id = c.id "
        "JOIN order_items i ON i.order_id = o.id JOIN products p ON p.id = i.product_id "
        f"WHERE p.category = '{category}' AND i.quantity >= {least} AND o.ordered_on LIKE '{year}-%'",
    )


def _never(dice: random.Random) -> Question:
    category, city = dice.choice(_CATEGORIES), dice.choice(_CITIES)
    told, condition = months(dice, 2023, 2025, "o.ordered_on")
    return Question(
        f"Which customers from {city} ordered nothing of the category {category} {told}? Give their names.",
        f"SELECT c.name FROM customers c WHERE c.city = '{city}' AND NOT EXISTS (SELECT 1 FROM orders o "
        "JOIN order_items i ON i.order_id = o.id JOIN products p ON p.id = i.product_id "
        f"WHERE o.customer_id = c.id AND p.category = '{category}' AND {condition})",
    )


def _spent_more(dice: random.Random) -> Question:
    city = dice.choice(_CITIES)
    told, condition = months(dice, 2023, 2025, "o.ordered_on")
    return Question(
        f"Of the orders from {city} {told}, which had a higher value than the average order of all times and places? "
        "Give the ids of the orders. An order without items has no value and does not count.",
        "WITH worth AS (SELECT i.order_id, SUM(i.quantity * p.price_cents) AS cents FROM order_items i "
        "JOIN products p ON p.id = i.product_id GROUP BY i.order_id) "
        "SELECT o.id FROM orders o JOIN customers c ON c.id = o.customer_id JOIN worth w ON w.order_id = o.id "
        f"WHERE {condition} AND c.city = '{city}' AND w.cents > (SELECT AVG(cents) FROM worth)",
    )


def _best_of_category(dice: random.Random) -> Question:
    city = dice.choice(_CITIES)
    told, condition = months(dice, 2023, 2025, "o.ordered_on", least=2)
    return Question(
        f"For each category, which product had the highest number of pieces in the orders from {city} {told}? Give "
        "category, product name and number of pieces; of equal numbers, the product whose name comes first. Leave out "
        "categories without orders.",
        "SELECT category, name, pieces FROM (SELECT p.category, p.name, SUM(i.quantity) AS pieces, ROW_NUMBER() OVER "
        "(PARTITION BY p.category ORDER BY SUM(i.quantity) DESC, p.name) AS place FROM order_items i "
        "JOIN products p ON p.id = i.product_id JOIN orders o ON o.id = i.order_id "
        "JOIN customers c ON c.id = o.customer_id "
        f"WHERE {condition} AND c.city = '{city}' GROUP BY p.id) WHERE place = 1",
    )


def _both(dice: random.Random) -> Question:
    one, other = dice.sample(_CATEGORIES, 2)
    told, condition = months(dice, 2023, 2025, "o.ordered_on")
    ordered = (
        "SELECT o.customer_id FROM orders o JOIN order_items i ON i.order_id = o.id JOIN products p ON "
        f"p.id = i.product_id WHERE {condition} AND p.category ="
    )
    return Question(
        f"Which customers ordered something of the category {one} and nothing of the category {other} {told}? Give "
        "their names.",
        f"SELECT name FROM customers WHERE id IN ({ordered} '{one}') AND id NOT IN ({ordered} '{other}')",
    )


DATABASE = Database(
    about="a shop",
    schema=SCHEMA,
    fill=_fill,
    questions={
        1: (_customers_of, _products_below, _orders_in, _dearest),
        2: (_city_orders, _sold, _bought),
        3: (_never, _spent_more, _best_of_category, _both),
    },
)
