"""Both clients have the same methods with the same arguments, so that they cannot drift apart."""

import inspect

import pytest

from parsync_redis import AsyncParsyncClient, ParsyncClient

OTHER_WORDS = {"__enter__": "__aenter__", "__exit__": "__aexit__"}
OWN = {"requests", "store"}
"""Attributes that only the client for threads has: they block."""


def methods(client):
    """Name -> method of all that is public, or is Python's; the parts of a `with` by their names
    for threads.
    """
    names = {other: name for name, other in OTHER_WORDS.items()}
    found = {
        name: getattr(client, name)
        for name in dir(client)
        if not name.startswith("_") or name in names
    }
    for name in OTHER_WORDS:
        found |= {name: getattr(client, name)} if hasattr(client, name) else {}
    return {names.get(name, name): method for name, method in found.items() if callable(method)}


def test_they_have_the_same_methods():
    assert set(methods(AsyncParsyncClient)) == set(methods(ParsyncClient))


@pytest.mark.parametrize("name", methods(ParsyncClient))
def test_a_method_takes_and_returns_the_same(name):
    mine, other = (
        inspect.signature(methods(client)[name]) for client in (AsyncParsyncClient, ParsyncClient)
    )
    assert list(mine.parameters.values()) == list(other.parameters.values())
    returned = str(mine.return_annotation)
    for word in ("ParsyncClient", "Iterator"):
        returned = returned.replace(f"Async{word}", word)
    assert returned == str(other.return_annotation)


def test_each_method_is_awaited_but_those_that_make_a_client_or_an_iterator():
    plain = {
        name
        for name, method in methods(AsyncParsyncClient).items()
        if not inspect.iscoroutinefunction(method)
    }
    assert plain == {"from_url", "events"}


def test_they_are_made_of_the_same_arguments():
    mine, other = (inspect.signature(client) for client in (AsyncParsyncClient, ParsyncClient))
    assert mine.parameters == other.parameters


def test_they_have_the_same_attributes():
    settings = {"url": "redis://127.0.0.1:1/0", "cluster": "none"}
    mine, other = (client.from_url(**settings) for client in (AsyncParsyncClient, ParsyncClient))
    public = [
        {name for name in vars(client) if not name.startswith("_")} for client in (mine, other)
    ]
    assert public[0] == public[1] - OWN
