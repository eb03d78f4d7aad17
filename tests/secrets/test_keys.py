"""Keys: how they are written, what they seal, and where they come from."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dalsegno.engine.secrets.keys import (
    FILE_VARIABLE,
    KEY_VARIABLE,
    Keyring,
    KeySource,
    Sealed,
    add_key,
    new_key,
    read_keys,
)
from dalsegno.errors import BadConfiguration, NoSecretKey, SecretUnreadable

PHRASE = "correct horse battery staple"


def ring(text: str) -> Keyring:
    found = read_keys(text, "here")
    assert found is not None
    return found


def test_what_a_key_seals_it_opens_and_another_does_not() -> None:
    one, other = ring(new_key()).first, ring(new_key()).first
    sealed = one.seal("Grüße, 世界", b"crm/token")
    assert one.open(sealed, b"crm/token") == "Grüße, 世界"
    for key, bound_to in ((other, b"crm/token"), (one, b"crm/other")):
        with pytest.raises(SecretUnreadable, match="damaged, or changed"):
            key.open(sealed, bound_to)


def test_the_same_value_is_sealed_differently_each_time() -> None:
    key = ring(new_key()).first
    seals = {(sealed.nonce, sealed.data) for sealed in (key.seal("same", b"") for _ in range(100))}
    assert len(seals) == len({nonce for nonce, _ in seals}) == 100


def test_a_flipped_bit_is_noticed() -> None:
    key = ring(new_key()).first
    sealed = key.seal("value", b"")
    with pytest.raises(SecretUnreadable):
        key.open(Sealed(sealed.key, sealed.nonce, bytes([sealed.data[0] ^ 1]) + sealed.data[1:]), b"")
    with pytest.raises(SecretUnreadable):
        key.open(Sealed(sealed.key, b"short", sealed.data), b"")


def test_a_passphrase_is_a_key_and_the_same_everywhere() -> None:
    sealed = ring(PHRASE).first.seal("value", b"")
    assert ring(f"  {PHRASE}\n").first.open(sealed, b"") == "value"
    assert ring(PHRASE).first.id != ring(PHRASE + "!").first.id


def test_both_alphabets_of_base64_are_one_key() -> None:
    key = new_key()
    assert ring(key).first.id == ring(key.replace("-", "+").replace("_", "/") + "=").first.id


def test_the_first_of_several_keys_seals_and_all_open() -> None:
    old, new = new_key(), new_key()
    both = ring(f"{new},{old}")
    assert both.first.id == ring(new).first.id
    assert both.find(ring(old).first.id) is not None
    assert both.ids() == ring(f"# today's\n{new}\n\n  # last year's\n{old}\n").ids()


@pytest.mark.parametrize("text", ["", " ", "\n# only a comment\n", ",,"])
def test_nothing_is_no_key(text: str) -> None:
    assert read_keys(text, "here") is None


def test_a_short_passphrase_is_refused_without_being_told() -> None:
    with pytest.raises(BadConfiguration, match=r"a passphrase of 8 characters") as caught:
        read_keys("hunter22", KEY_VARIABLE)
    assert "hunter22" not in str(caught.value)


def test_a_key_id_tells_nothing_about_the_key() -> None:
    key = new_key()
    assert ring(key).first.id not in key


def test_the_environment_wins_over_the_file_beside_the_store(tmp_path: Path) -> None:
    url, key = f"sqlite:///{tmp_path / 'a.db'}", new_key()
    beside = add_key(tmp_path / "a.db.key")
    assert KeySource(url, {}).keyring().first.id == ring(beside).first.id
    assert KeySource(url, {KEY_VARIABLE: key}).keyring().first.id == ring(key).first.id
    named = add_key(tmp_path / "named")
    assert KeySource(url, {FILE_VARIABLE: str(tmp_path / "named")}).keyring().first.id == ring(named).first.id


def test_two_sources_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="both set"):
        KeySource("memory:", {KEY_VARIABLE: new_key(), FILE_VARIABLE: str(tmp_path)}).keyring()


@pytest.mark.parametrize("content", [None, "# nothing\n"])
def test_a_key_file_without_a_key_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadConfiguration, match=str(path)):
        KeySource("memory:", {FILE_VARIABLE: str(path)}).keyring()


@pytest.mark.parametrize("url", ["sqlite:///{}/a.db", "postgresql://db/x"])
def test_without_a_key_the_error_says_how_to_make_one(tmp_path: Path, url: str) -> None:
    source = KeySource(url.format(tmp_path), {})
    for look in (source.keyring, lambda: source.keyring_or_new(is_first=True)):
        with pytest.raises(NoSecretKey, match="dalsegno credentials new-key"):
            look()
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_made_only_where_allowed_and_only_for_the_first_credential(tmp_path: Path) -> None:
    source = KeySource(f"sqlite:///{tmp_path / 'a.db'}", {})
    source.may_make = True
    with pytest.raises(NoSecretKey):
        source.keyring_or_new(is_first=False)
    made = source.keyring_or_new(is_first=True)
    path = tmp_path / "a.db.key"
    assert (source.made, path.stat().st_mode & 0o777) == (path, 0o600)
    assert ring(path.read_text()).first.id == made.first.id
    assert source.keyring_or_new(is_first=True).first.id == made.first.id, "a second one was made"


def test_a_memory_store_has_a_key_as_long_as_it_lives() -> None:
    source = KeySource("memory:", {})
    assert source.keyring().first is source.keyring(again=True).first
    assert KeySource("memory:", {}).keyring().first.id != source.keyring().first.id


def test_a_new_key_in_the_file_is_seen_by_a_running_process(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    old = add_key(path)
    source = KeySource("memory:", {FILE_VARIABLE: str(path)})
    assert source.keyring().ids() == ring(old).ids()
    new = add_key(path)
    assert source.keyring(again=True).ids() == ring(f"{new},{old}").ids()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["keys"]


def test_a_key_file_that_others_can_read_is_complained_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys"
    key = add_key(path)
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING, "dalsegno.secrets"):
        KeySource("memory:", {FILE_VARIABLE: str(path)}).keyring()
    assert "can be read by other users" in caplog.text
    assert key not in caplog.text
