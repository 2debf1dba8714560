"""A model's vocabulary: text to tokens and back; it knows no context and no conversation."""

import ctypes
from collections.abc import Iterable
from typing import Any

# llama.h: what tokenizing with parse_special=False never yields from text.
_ATTR_UNKNOWN = 1
_ATTR_CONTROL = 8

_PIECE_BYTES = 256


class Vocabulary:
    """Text goes in as str and comes out as bytes: a token may be half a character."""

    def __init__(self, api: Any, model: int) -> None:
        self._api = api
        self._vocab = api.llama_model_get_vocab(model)
        self._pieces: dict[int, bytes | None] = {}
        self._buffer = ctypes.create_string_buffer(_PIECE_BYTES)
        self.size: int = api.llama_vocab_n_tokens(self._vocab)
        self.bos: int = api.llama_vocab_bos(self._vocab)
        self.eos: int = api.llama_vocab_eos(self._vocab)
        self.adds_bos: bool = api.llama_vocab_get_add_bos(self._vocab) and self.bos >= 0

    def tokenize(self, text: str, *, special: bool) -> list[int]:
        """The tokens of ``text`` alone; ``special``: names of control tokens in it count."""
        data = text.encode()
        room = len(data) + 8
        tokens = (ctypes.c_int32 * room)()
        count = self._api.llama_tokenize(self._vocab, data, len(data), tokens, room, False, special)
        if count < 0:
            tokens = (ctypes.c_int32 * -count)()
            count = self._api.llama_tokenize(
                self._vocab, data, len(data), tokens, -count, False, special
            )
        return tokens[:count]

    def with_bos(self, tokens: list[int]) -> list[int]:
        """``tokens`` with one token for the beginning, if the model wants one; never two."""
        if not self.adds_bos or tokens[:1] == [self.bos]:
            return tokens
        return [self.bos, *tokens]

    def piece(self, token: int) -> bytes | None:
        """The bytes that ``token`` adds to an answer; ``None`` if it ends the answer."""
        try:
            return self._pieces[token]
        except KeyError:
            ends = self._api.llama_vocab_is_eog(self._vocab, token)
            found = self._pieces[token] = None if ends else self._bytes(token, special=False)
            return found

    def text(self, tokens: Iterable[int]) -> str:
        """The text of ``tokens``; halves of characters at its ends are dropped."""
        data = b"".join(self._bytes(token, special=False) for token in tokens)
        return data.decode("utf-8", "ignore")

    def name(self, token: int) -> str:
        """How ``token`` is written, control tokens included; empty for no token."""
        return self._bytes(token, special=True).decode("utf-8", "replace") if token >= 0 else ""

    def control_names(self, text: str) -> set[str]:
        """The names of control tokens that occur in ``text``."""
        wanted = _ATTR_UNKNOWN | _ATTR_CONTROL
        return {
            self.name(token)
            for token in set(self.tokenize(text, special=True))
            if self._api.llama_vocab_get_attr(self._vocab, token) & wanted
        } - {""}

    def _bytes(self, token: int, *, special: bool) -> bytes:
        length = self._api.llama_token_to_piece(
            self._vocab, token, self._buffer, len(self._buffer), 0, special
        )
        if length < 0:
            self._buffer = ctypes.create_string_buffer(-length)
            return self._bytes(token, special=special)
        return self._buffer.raw[:length]
