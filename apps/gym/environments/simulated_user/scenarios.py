"""The twelve requests of the library's users, drawn as tasks in tau2's shape."""

import random
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any, NamedTuple

from apps.gym.environments.simulated_user.library_desk import AGENT_DATA, BOOKS, LOAN_DAYS, MEMBERS, Record, email_of
from apps.gym.environments.task_generation import Difficulty
from apps.gym.traces.items import TaskRow, message

TODAY = date.fromisoformat(AGENT_DATA["today"])
POLICY = f"""\
You work at the desk of the Brook Lane Library, by chat. Today is {TODAY}.

- Ask for the card number before you look at or change anything of a member.
- Renew a loan at most twice. Never renew a loan while another member has a hold on the book.
- A book is returned when it is in the returns box and you have checked it in. Ask the member to put it there first.
- Waive a fine only after every overdue book of the member is checked in.
- Block the card of a member who says that it is lost or stolen.
- You cannot change reminders. The member sets them in the library app.
- For anything else, transfer the member to a librarian.
- Do only what the member asks for. Write dates as YYYY-MM-DD.
- When you are done, ask whether there is anything else that you can do."""

_PERSONAS = (
    "A retired teacher, polite and precise.",
    "A student in a hurry, who writes short messages.",
    "A parent who is often interrupted.",
    "A night nurse, friendly and tired.",
    "A first-time user of chats, who writes whole sentences.",
)


class Drawn(NamedTuple):
    """A member, with loans by id."""

    dice: random.Random
    member: str
    loans: dict[str, Record]
    others: list[str]

    @property
    def name(self) -> str:
        return MEMBERS[self.member]

    def title(self, loan: str) -> str:
        return BOOKS[self.loans[loan]["book"]]


class Request(NamedTuple):
    """A request: what the user says first, and how the attempt is scored."""

    opening: str
    reason: str
    actions: list[Record]
    instructions: str = ""
    known: str = ""
    info: tuple[str, ...] = ()
    assertions: tuple[Record, ...] = ()
    basis: tuple[str, ...] = ("DB", "COMMUNICATE")
    holds: dict[str, Record] = {}
    fine: float = 0.0
    card_is_read: bool = False


def draw_task(dice: random.Random, make: Callable[[Drawn], Request]) -> TaskRow:
    """Return a task: a member with three loans, and the request that `make` draws."""
    member = dice.choice(list(MEMBERS))
    loans = {
        f"L-{number}": {
            "member": member,
            "book": book,
            "due": (TODAY + timedelta(days=dice.randint(1, 20))).isoformat(),
            "renewals": dice.randint(0, 1),
        }
        for number, book in zip(dice.sample(range(100, 1000), 3), dice.sample(list(BOOKS), 3), strict=True)
    }
    others = [book for book in BOOKS if all(loan["book"] != book for loan in loans.values())]
    dice.shuffle(others)
    drawn = Drawn(dice, member, loans, others)
    request = make(drawn)
    card = "" if request.card_is_read else f"Your card number is {member}. "
    return {
        "responses_create_params": {"input": [message("system", POLICY), message("user", request.opening)]},
        "description": {"purpose": make.__name__.replace("_", " ").strip()},
        "user_scenario": {
            "persona": dice.choice(_PERSONAS),
            "instructions": {
                "domain": "library",
                "reason_for_call": request.reason,
                "known_info": f"Your name is {drawn.name}. {card}{request.known}".strip(),
                "task_instructions": request.instructions,
            },
        },
        "initial_state": {
            "initialization_data": {
                "agent_data": {
                    "loans": loans,
                    "holds": request.holds,
                    **({"members": {member: {"fine": request.fine}}} if request.fine else {}),
                },
                "user_data": {"card_number": member, "at_home": [drawn.title(loan) for loan in loans]},
            }
        },
        "evaluation_criteria": {
            "actions": request.actions,
            "env_assertions": list(request.assertions),
            "communicate_info": list(request.info),
            "reward_basis": list(request.basis),
        },
    }


def _act(name: str, requestor: str = "assistant", /, **arguments: Any) -> Record:
    return {"action_id": name, "requestor": requestor, "name": name, "arguments": arguments}


def _later(due: str) -> str:
    return (date.fromisoformat(due) + timedelta(days=LOAN_DAYS)).isoformat()


def _return_instruction(title: str) -> str:
    return f'When asked to put {title} into the returns box, call return_book({{"title": "{title}"}}).'


# ── easy: one change ──


def _renew_a_loan(drawn: Drawn) -> Request:
    loan = next(iter(drawn.loans))
    title, due = drawn.title(loan), _later(drawn.loans[loan]["due"])
    return Request(
        opening=f"Hi, can I keep {title} for longer?",
        reason=f"You want to renew the loan of {title}, and to know the new due date.",
        actions=[_act("renew_loan", loan=loan)],
        info=(due,),
    )


def _reserve_a_book(drawn: Drawn) -> Request:
    book = drawn.others[0]
    return Request(
        opening=f"Hello, I would like to reserve {BOOKS[book]}.",
        reason=f"You want a hold on {BOOKS[book]}.",
        actions=[_act("place_hold", member=drawn.member, book=book)],
    )


def _change_the_email(drawn: Drawn) -> Request:
    email = email_of(drawn.name).replace("@", f"{drawn.dice.randint(10, 99)}@new.")
    return Request(
        opening="Good morning. My e-mail address has changed.",
        reason="You want the library to write to your new e-mail address.",
        known=f"Your new e-mail address is {email}.",
        actions=[_act("set_email", member=drawn.member, email=email)],
    )


def _report_a_lost_card(drawn: Drawn) -> Request:
    reason = drawn.dice.choice(["lost", "stolen"])
    return Request(
        opening=f"My library card was {reason}. What now?",
        reason=f"Your card was {reason}. You want to be sure that nobody can use it.",
        actions=[_act("block_card", member=drawn.member, reason=reason)],
        assertions=(_assert("assert_card", member=drawn.member, status="blocked"),),
        basis=("DB", "ENV_ASSERTION"),
    )


# ── medium: the user acts too, or several changes ──


def _return_a_book(drawn: Drawn) -> Request:
    loan = drawn.dice.choice(list(drawn.loans))
    title = drawn.title(loan)
    return Request(
        opening=f"I have read {title} and am in front of the library. How do I return it?",
        reason=f"You want to return {title}.",
        instructions=_return_instruction(title),
        actions=[_act("return_book", "user", title=title), _act("check_in", loan=loan)],
        assertions=(
            _assert("assert_loan_count", member=drawn.member, count=2),
            _assert("assert_at_home", "user", title=title) | {"assert_value": False},
        ),
        basis=("DB", "ENV_ASSERTION"),
    )


def _ask_what_is_due_first(drawn: Drawn) -> Request:
    first = min(drawn.loans.values(), key=lambda loan: str(loan["due"]))
    for loan in drawn.loans.values():
        if loan is not first and loan["due"] == first["due"]:
            loan["due"] = _later(loan["due"])
    return Request(
        opening="Which of my books do I have to bring back first?",
        reason="You want to know which of your loans is due first, and when. You want no changes.",
        actions=[],
        info=(BOOKS[first["book"]], first["due"]),
    )


def _change_email_and_reminders(drawn: Drawn) -> Request:
    email = email_of(drawn.name).replace("@", f"{drawn.dice.randint(10, 99)}@home.")
    return Request(
        opening="I never get any reminders. Can you help?",
        reason="You want reminders before your books are due, at your new e-mail address.",
        known=f"Your new e-mail address is {email}.",
        instructions='When asked to switch on reminders, call set_reminders({"state": "on"}).',
        actions=[
            _act("set_email", member=drawn.member, email=email),
            _act("set_reminders", "user", state="on"),
        ],
        basis=("DB", "ACTION"),
    )


def _swap_a_hold(drawn: Drawn) -> Request:
    old, new = drawn.others[:2]
    hold = f"H-{drawn.member[2:]}-{old[2:]}"
    return Request(
        opening=f"I no longer want to wait for {BOOKS[old]}.",
        reason=f"You want to cancel your hold on {BOOKS[old]}, and to have one on {BOOKS[new]} instead.",
        instructions=f'When asked for anything else, say "Yes, please reserve {BOOKS[new]} for me."',
        actions=[_act("cancel_hold", hold=hold), _act("place_hold", member=drawn.member, book=new)],
        holds={hold: {"member": drawn.member, "book": old}},
    )


# ── hard: the policy forbids a part, or the order matters ──


def _renew_what_may_be_renewed(drawn: Drawn) -> Request:
    used, free = drawn.dice.sample(list(drawn.loans), 2)
    drawn.loans[used]["renewals"] = 2
    return Request(
        opening=f"Please renew {drawn.title(used)} and {drawn.title(free)}.",
        reason=f"You want to renew {drawn.title(used)} and {drawn.title(free)}. One of them is fine, too.",
        actions=[_act("renew_loan", loan=free)],
        info=(_later(drawn.loans[free]["due"]),),
    )


def _clear_a_fine(drawn: Drawn) -> Request:
    loan = drawn.dice.choice(list(drawn.loans))
    drawn.loans[loan]["due"] = (TODAY - timedelta(days=drawn.dice.randint(3, 30))).isoformat()
    title = drawn.title(loan)
    return Request(
        opening="I have a fine and would like it waived. I was ill.",
        reason=f"You want your fine waived. You are in front of the library, and have {title} with you.",
        instructions=_return_instruction(title),
        actions=[
            _act("return_book", "user", title=title),
            _act("check_in", loan=loan),
            _act("waive_fine", member=drawn.member),
        ],
        assertions=(_assert("assert_fine", member=drawn.member, amount=0.0),),
        basis=("DB", "ENV_ASSERTION"),
        fine=drawn.dice.randint(2, 20) / 2,
    )


def _leave_a_held_book(drawn: Drawn) -> Request:
    held, other = drawn.dice.sample(list(drawn.loans), 2)
    waiting = drawn.dice.choice([member for member in MEMBERS if member != drawn.member])
    book = drawn.loans[held]["book"]
    title = drawn.title(held)
    return Request(
        opening=f"I would like to keep {title} for another three weeks.",
        reason=f"You want to renew {title}. Otherwise you return it, and renew {drawn.title(other)}.",
        instructions=f"{_return_instruction(title)} "
        f'When asked for anything else, say "Yes, please renew {drawn.title(other)}."',
        actions=[
            _act("return_book", "user", title=title),
            _act("check_in", loan=held),
            _act("renew_loan", loan=other),
        ],
        holds={f"H-{waiting[2:]}-{book[2:]}": {"member": waiting, "book": book}},
    )


def _ask_for_a_librarian(drawn: Drawn) -> Request:
    loan = drawn.dice.choice(list(drawn.loans))
    title = drawn.title(loan)
    return Request(
        opening=f"Please renew {title}. And I have a box of books that I would like to give to the library.",
        reason=f"You want to renew {title}, and to give old books to the library.",
        instructions="When asked to read the number on the card, call read_card().",
        actions=[
            _act("read_card", "user"),
            _act("renew_loan", loan=loan),
            _act("transfer", summary="") | {"compare_args": []},
        ],
        basis=("DB", "ACTION"),
        card_is_read=True,
    )


def _assert(name: str, side: str = "assistant", /, **arguments: Any) -> Record:
    return {"env_type": side, "func_name": name, "arguments": arguments, "assert_value": True}


REQUESTS: dict[Difficulty, tuple[Callable[[Drawn], Request], ...]] = {
    "easy": (_renew_a_loan, _reserve_a_book, _change_the_email, _report_a_lost_card),
    "medium": (_return_a_book, _ask_what_is_due_first, _change_email_and_reminders, _swap_a_hold),
    "hard": (_renew_what_may_be_renewed, _clear_a_fine, _leave_a_held_book, _ask_for_a_librarian),
}
