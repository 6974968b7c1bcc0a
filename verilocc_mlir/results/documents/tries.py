"""What a model did, and what a server tried, as parts of the JSON documents."""

from __future__ import annotations

from typing import Annotated

from verilocc_mlir.forms import Amount, Form, Whole, about


class ModelForm(Form):
    """What a model did for one answer."""

    model: str
    adapter: Annotated[str | None, about("the adapter that was applied; null for none")]
    tokens: Annotated[Whole, about("that the model read, its own answers among them")]
    seconds: Annotated[Amount, about("wall time of the answer")]
    note: Annotated[str | None, about("an adapter that is there and was not applied, and why")]


class ModelPartForm(Form):
    """What one model did in the whole run."""

    model: str
    adapter: Annotated[str | None, about("the adapter that was applied; null for none")]
    server: Annotated[str | None, about("address of the server that it is behind; null: here")]
    tries: Whole
    refuted: Annotated[Whole, about("answers that the proof refuted")]
    tokens: Whole
    seconds: Amount
    note: Annotated[str | None, about("an adapter that is there and was not applied, and why")]


class ServerAttemptForm(Form):
    """One try of the server, in its own words."""

    allocator: str
    version: str
    ended: str
    outcome: Annotated[str | None, about("its verdict on the proposal; null where it judged none")]
    reason: Annotated[str | None, about("why it was not taken; null: it was")]
    refuted: Annotated[list[str], about("constraints that the proposal violates, which the next try was told")]
    model: Annotated[ModelForm | None, about("what its model did; null without one")]
