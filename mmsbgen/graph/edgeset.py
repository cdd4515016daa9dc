"""An immutable cuckoo hash set of unordered pairs, in which the kernels look up links.

Two hash functions address two tables of ``n_buckets`` buckets each; a bucket holds four 64-bit keys (32 bytes, one
memory sector).  Every key is in its bucket of table 0 by the first function or in its bucket of table 1 by the second,
so a look-up reads at most two buckets.  Tables can have any size, since hashes are mapped to the range by a
multiplication, not a mask.

Exact definition, in 64-bit unsigned arithmetic (C; the kernels implement the same)::

    key(u, v)        = ((uint64)min(u, v) << 32) | max(u, v)          // u != v, both < 2^32 - 1
    empty            = 0xFFFFFFFFFFFFFFFF                             // no valid key has max = 2^32 - 1

    bucket(key, s):                                                   // s = seeds[0] or seeds[1]
        x = key ^ s
        x = x ^ (x >> 33)
        x = x * 0xFF51AFD7ED558CCD                                    // mod 2^64
        x = x ^ (x >> 33)
        x = x * 0xC4CEB9FE1A85EC53                                    // mod 2^64
        return ((x >> 32) * n_buckets) >> 32                          // in [0, n_buckets)

    contains(u, v):
        if u == v: return false
        b0 = buckets[            bucket(key, seeds[0])]               // four keys each
        b1 = buckets[n_buckets + bucket(key, seeds[1])]
        return key is one of the four of b0 or one of the four of b1

This is the finaliser of MurmurHash3 on ``key ^ s``; its last xor-shift is left out because it cannot change
the upper 32 bits, the only ones used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmsbgen.base.errors import MmsbgenError
from mmsbgen.base.progress import Stage, stage
from mmsbgen.graph.graph import Int64Array, UInt64Array, distinct_keys, pack_pairs, read_only

#: Keys in one bucket.
BUCKET_SLOTS = 4
#: The content of a free slot.
EMPTY_KEY = np.uint64(0xFFFF_FFFF_FFFF_FFFF)

_MULTIPLIER_1 = np.uint64(0xFF51_AFD7_ED55_8CCD)
_MULTIPLIER_2 = np.uint64(0xC4CE_B9FE_1A85_EC53)
_FOLD = np.uint64(33)
_HALF = np.uint64(32)

# The maximum load of two tables of four-key buckets is 0.977 for many keys.  Small sets vary more with the seed and
# need little memory, so they use a lower load.
_LOAD, _SMALL_LOAD, _SMALL = 0.945, 0.8, 1000
_MAX_ROUNDS = 1000
#: Pairs of hash functions that are tried.
_ATTEMPTS = 16


class EdgeSetError(MmsbgenError):
    """No placement of the keys was found with any seed."""


def bucket_of(keys: UInt64Array, seed: np.uint64, n_buckets: int) -> Int64Array:
    """Return the bucket of every key within its table, int64, same shape as ``keys`` (module docstring)."""
    mixed = keys ^ seed
    mixed ^= mixed >> _FOLD
    mixed *= _MULTIPLIER_1
    mixed ^= mixed >> _FOLD
    mixed *= _MULTIPLIER_2
    mixed >>= _HALF
    mixed *= np.uint64(n_buckets)
    mixed >>= _HALF
    return mixed.view(np.int64)


@dataclass(frozen=True, eq=False)
class EdgeSet:
    """An immutable set of unordered pairs of different vertices.

    buckets
        uint64 ``[2 * n_buckets, 4]``, C-contiguous, read-only: table 0, then table 1; free slots hold
        ``0xFFFFFFFFFFFFFFFF``.  This array is copied to the device unchanged.
    n_buckets
        Buckets of one table, uint32.
    seeds
        uint64 ``[2]``, one for each table.
    n_links
        Number of pairs in the set.
    """

    buckets: UInt64Array
    n_buckets: np.uint32
    seeds: UInt64Array
    n_links: int

    @staticmethod
    def build(pairs: ArrayLike) -> EdgeSet:
        """Build the set from ``pairs`` of different vertices, in any order and direction; repeated ones count once.

        The same set of pairs gives the same tables.

        Args:
            pairs: Integers ``[H, 2]``, from 0 to 2**32 - 2.

        Raises:
            EdgeSetError: If no placement was found by several pairs of hash functions, which practically never happens.
        """
        array = np.asarray(pairs).reshape(-1, 2)
        keys = distinct_keys(pack_pairs(array.min(axis=1), array.max(axis=1)))
        load = _LOAD if keys.size >= _SMALL else _SMALL_LOAD
        n_buckets = max(1, math.ceil(keys.size / (2 * BUCKET_SLOTS * load)))
        for attempt in range(_ATTEMPTS):
            rng = np.random.Generator(np.random.PCG64([0, attempt]))
            seeds = rng.integers(0, 2**64, size=2, dtype=np.uint64)
            with stage(f"building the edge set of {keys.size} pairs", keys.size, "pairs") as told:
                buckets = _place(keys, seeds, n_buckets, rng, told)
            if buckets is not None:
                return EdgeSet(read_only(buckets), np.uint32(n_buckets), read_only(seeds), int(keys.size))
        raise EdgeSetError(
            f"no placement of {keys.size} pairs in {2 * BUCKET_SLOTS * n_buckets} slots (load {load}) was found "
            f"with {_ATTEMPTS} pairs of hash functions"
        )

    @property
    def load(self) -> float:
        """Share of used slots."""
        return self.n_links / self.buckets.size

    def contains(self, first: ArrayLike, second: ArrayLike) -> NDArray[np.bool_]:
        """Whether the pairs of vertices ``first`` and ``second``, of broadcastable shapes, are in the set.

        The order within a pair does not matter.  Returns bool of the broadcast shape (0-dimensional for two numbers).
        """
        u, v = np.broadcast_arrays(np.asarray(first), np.asarray(second))
        a, b, n_buckets = u.reshape(-1), v.reshape(-1), int(self.n_buckets)
        keys = pack_pairs(np.minimum(a, b), np.maximum(a, b))
        table_0 = self.buckets[bucket_of(keys, self.seeds[0], n_buckets)]
        table_1 = self.buckets[bucket_of(keys, self.seeds[1], n_buckets) + n_buckets]
        found: NDArray[np.bool_] = ((table_0 == keys[:, None]) | (table_1 == keys[:, None])).any(axis=1)
        return found.reshape(u.shape)


def _place(
    keys: UInt64Array, seeds: UInt64Array, n_buckets: int, rng: np.random.Generator, told: Stage
) -> UInt64Array | None:
    """Parallel cuckoo insertion of all keys, in rounds; None if keys remain after ``_MAX_ROUNDS``.

    In a round every unplaced key tries one of its two buckets.  Keys with the same bucket fill its free slots in order.
    If the bucket is full, one of the remaining keys evicts a stored key, preferably one with a free slot in its other
    bucket.  This look-ahead reaches loads above 0.95 in few rounds.  The other keys try their other bucket next.
    """
    slots = np.full((2 * n_buckets, BUCKET_SLOTS), EMPTY_KEY, dtype=np.uint64)
    fill = np.zeros(2 * n_buckets, dtype=np.int64)
    homeless, target = keys, bucket_of(keys, seeds[0], n_buckets)
    for round_number in range(_MAX_ROUNDS):
        told.tell(keys.size - homeless.size)
        if homeless.size == 0:
            return slots
        homeless, target, rank = _group(homeless, target)
        seat = fill[target] + rank
        fits = seat < BUCKET_SLOTS
        slots[target[fits], seat[fits]] = homeless[fits]
        np.add.at(fill, target[fits], 1)

        over = ~fits
        # The first two rounds evict no keys, since no key has tried both of its buckets before.
        kicks = (seat == BUCKET_SLOTS) & (round_number > 1)
        waits = over & ~kicks
        others, other_targets = homeless[waits], _other_bucket(homeless[waits], target[waits], seeds, n_buckets)
        victims, victim_targets = _drive_out(slots, fill, homeless[kicks], target[kicks], seeds, rng)
        homeless = np.concatenate([others, victims])
        target = np.concatenate([other_targets, victim_targets])
    return None


def _group(keys: UInt64Array, target: Int64Array) -> tuple[UInt64Array, Int64Array, Int64Array]:
    """Return keys and targets sorted by target bucket, and the rank of each key within its bucket."""
    # Sorting (target, index) packed into one word is several times faster than argsort.
    packed = np.sort(pack_pairs(target, np.arange(keys.size)))
    target = (packed >> _HALF).view(np.int64)
    index = np.arange(keys.size)
    begins = np.ones(keys.size, dtype=np.bool_)
    begins[1:] = target[1:] != target[:-1]
    rank = index - np.maximum.accumulate(np.where(begins, index, 0))
    return keys[packed & np.uint64(0xFFFF_FFFF)], target, rank


def _other_bucket(keys: UInt64Array, target: Int64Array, seeds: UInt64Array, n_buckets: int) -> Int64Array:
    """The bucket of every key in the table without ``target``, numbered over both tables."""
    in_first = target < n_buckets
    other = bucket_of(keys, np.where(in_first, seeds[1], seeds[0]), n_buckets)
    return other + np.where(in_first, n_buckets, 0)


def _drive_out(
    slots: UInt64Array,
    fill: Int64Array,
    keys: UInt64Array,
    target: Int64Array,
    seeds: UInt64Array,
    rng: np.random.Generator,
) -> tuple[UInt64Array, Int64Array]:
    """Put each key into its full bucket (all distinct); return the evicted keys and their other buckets."""
    n_buckets = fill.size // 2
    tenants = slots[target]
    wide = np.broadcast_to(target[:, None], tenants.shape)
    elsewhere = _other_bucket(tenants, wide, seeds, n_buckets)
    choice = np.argmin(rng.random(tenants.shape) + (fill[elsewhere] == BUCKET_SLOTS), axis=1)
    row = np.arange(keys.size)
    victims, victim_targets = tenants[row, choice], elsewhere[row, choice]
    slots[target, choice] = keys
    return victims, victim_targets
