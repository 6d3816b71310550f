import threading
import time
import uuid

from outlast.client.identity import Ids, derived


def test_an_id_is_a_uuid_of_version_7_that_tells_the_time() -> None:
    before = time.time_ns() // 1_000_000

    made = uuid.UUID(Ids().new())

    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000


def test_ids_grow_even_within_one_tick_of_the_clock() -> None:
    ids = Ids()

    made = [ids.new() for _ in range(10_000)]

    assert made == sorted(set(made))


def test_ids_made_on_several_threads_differ() -> None:
    ids = Ids()
    made: list[list[str]] = []
    threads = [threading.Thread(target=lambda: made.append([ids.new() for _ in range(2_000)])) for _ in range(4)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({one for several in made for one in several}) == 8_000


def test_a_derived_id_is_the_same_for_the_same_call_of_a_step_and_no_other() -> None:
    first = derived("run-1:charge", "start mail", 0)

    assert first == derived("run-1:charge", "start mail", 0)
    assert len({first, derived("run-1:charge", "start mail", 1), derived("run-1:charge", "start post", 0)}) == 3
    assert len(derived("x" * 1_000, "start mail", 0)) == 32
