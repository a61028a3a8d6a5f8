import unittest
from typing import Callable, Optional, Sequence

from ratekeeper import read_rate_limit_info
from ratekeeper._pacer import Lane, Pacer, Ticket
from simulation import FixedWindow, Limiter, Simulation, SlidingLog, TokenBucket

SECOND = 1000
MINUTE = 60 * SECOND

# A limit, and how much it allows in twenty seconds.
LIMITS: list[tuple[str, Callable[[], Sequence[Limiter]], int]] = [
    ("50/s in a fixed window", lambda: [FixedWindow("a", lambda: 50, SECOND)], 1000),
    ("50/s in a sliding window", lambda: [SlidingLog("a", 50, SECOND)], 1000),
    ("50/s from a bucket", lambda: [TokenBucket("a", 50, SECOND)], 1050),
    ("50/s from a bucket of ten", lambda: [TokenBucket("a", 50, SECOND, 10)], 1010),
    ("3/s from a bucket of one", lambda: [TokenBucket("a", 3, SECOND, 1)], 61),
    ("600/min from a bucket of 5", lambda: [TokenBucket("a", 600, MINUTE, 5)], 205),
    ("600/min from a bucket of 50", lambda: [TokenBucket("a", 600, MINUTE, 50)], 250),
    ("600/min from a bucket", lambda: [TokenBucket("a", 600, MINUTE)], 800),
    ("600/min from a bucket of 1,000", lambda: [TokenBucket("a", 600, MINUTE, 1000)], 1200),
    ("two windows", lambda: [FixedWindow("a", lambda: 50, SECOND), SlidingLog("b", 600, MINUTE)], 600),
    ("two buckets", lambda: [TokenBucket("a", 50, SECOND), TokenBucket("b", 600, MINUTE)], 800),
]


class Pacing(unittest.TestCase):
    def test_one_client_is_never_denied_and_uses_nine_tenths(self) -> None:
        for name, limiters, allowed in LIMITS:
            for workers in (1, 4, 20):
                for seed in (1, 2):
                    with self.subTest(name, workers=workers, seed=seed):
                        result = Simulation(limiters(), 1, [workers], seed=seed).run()
                        self.assertEqual(result.denied, 0)
                        self.assertGreaterEqual(result.passed, 0.9 * allowed)

    def test_one_client_far_away_is_never_denied(self) -> None:
        for name, limiters, _ in LIMITS:
            for latency_ms in (30, 100):
                with self.subTest(name, latency_ms=latency_ms):
                    self.assertEqual(Simulation(limiters(), latency_ms, [20]).run().denied, 0)

    def test_two_clients_that_share_a_key_are_denied_at_most_one_in_a_hundred(self) -> None:
        for name, limiters, _ in LIMITS[:3]:
            for seed in (1, 2, 3):
                with self.subTest(name, seed=seed):
                    result = Simulation(limiters(), 1, [1, 1], seed=seed).run()
                    self.assertLessEqual(result.denied, 0.01 * result.passed)
                    self.assertGreaterEqual(result.passed, 850)

    def test_a_limit_that_is_lowered_half_way_costs_no_more_than_what_was_under_way(self) -> None:
        limit = [50]
        lower = [(10_000.0, lambda: limit.__setitem__(0, 20))]
        result = Simulation([FixedWindow("a", lambda: limit[0], SECOND)], 1, [4], at=lower).run()
        self.assertLessEqual(result.denied, 4)
        self.assertGreaterEqual(result.passed, 0.9 * 700)

    def test_an_answer_that_a_denial_overtook_promises_nothing_as_when_the_limit_was_lowered(self) -> None:
        pacer, lane = Pacer(), Lane("b", "r")

        def sent(now: float) -> Ticket:
            taken = pacer.take(lane, now)
            assert isinstance(taken, Ticket)
            return taken

        def answer(ticket: Ticket, status: int, quota: int, left: int, now: float) -> None:
            told = [("ratelimit-policy", f'"p";q={quota};w=1'), ("ratelimit", f'"p";r={left};t=1')]
            pacer.answered(ticket, read_rate_limit_info(status, told), now)

        answer(sent(0), 200, 60, 59, 1)
        earlier, later = sent(2), sent(2)
        answer(later, 429, 20, 0, 3)
        answer(earlier, 200, 60, 58, 4)
        for now in (4.0, 200.0, 1000.0):
            self.assertNotIsInstance(pacer.take(lane, now), Ticket)
        answer(sent(1003), 200, 20, 19, 1004)
        for _ in range(19):
            sent(1004)

    def test_a_batch_within_the_limit_takes_no_longer_than_its_answers_but_for_the_first(self) -> None:
        result = Simulation([FixedWindow("a", lambda: 50, SECOND)], 10, [50], requests=50, start_ms=0).run()
        self.assertEqual(result.passed, 50)
        self.assertLess(result.ended_at, 60)

    def test_a_request_that_ends_what_is_done_after_denials_without_a_name_is_settled_for_the_other_limits_too(self) -> None:
        pacer, now = Pacer(), 0.0

        def take(route: str) -> Ticket:
            nonlocal now
            now += 100_000
            taken = pacer.take(Lane("b", route), now)
            assert isinstance(taken, Ticket), taken
            return taken

        def answer(ticket: Ticket, status: int, left: Optional[int] = None) -> None:
            told = [("ratelimit-policy", '"p";q=9;w=3600'), ("ratelimit", f'"p";r={left};t=3600')]
            pacer.answered(ticket, read_rate_limit_info(status, [] if left is None else told), now)

        answer(take("plain"), 429)
        for _ in range(7):
            answer(take("plain"), 200)
        last = take("plain")
        answer(take("limited"), 200, 0)
        answer(last, 200)
        now += 3_600_000
        answer(take("limited"), 200, 5)
        for _ in range(5):
            take("limited")


if __name__ == "__main__":
    unittest.main()
