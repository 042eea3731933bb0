"""The generator's change tables and messages of a Qlik task are as the documentation has them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from workload_generator.database import Change
from workload_generator.delivery import Delivery
from workload_generator.history import SHOP_TABLES, random_history
from workload_generator.qlik_change_tables import HEADERS, ChangeTableOptions, stored_changes
from workload_generator.qlik_messages import QlikMessageOptions, render

PRODUCTS, LINES = SHOP_TABLES[1], SHOP_TABLES[3]
OLD = {"sku": "a", "title": "old", "price": "1.0000", "weight": None, "released": None}
NEW = {**OLD, "title": "new", "released": "2024-02-29"}
UPDATE = Change(PRODUCTS, "U", OLD, NEW, 3, 7)


@pytest.mark.parametrize(
    ("headers", "binary", "mask"),
    [
        # title and released are data columns 1 and 4: with seven header columns bits 8 and 11.
        (HEADERS[:-1], False, "0900"),
        (HEADERS[:-1], True, "0x0009"),
        (HEADERS[:3], False, "90"),
        (HEADERS[:3], True, "0x90"),
    ],
)
def test_t20_to_t23_masks_count_header_columns_and_drop_zero_bytes(
    headers: tuple[str, ...], binary: bool, mask: str
) -> None:
    _, after = stored_changes([UPDATE], ChangeTableOptions(headers=headers, binary_mask=binary))
    assert after.header["change_mask"] == mask


def test_t21_a_delete_marks_the_key_and_a_before_image_nothing() -> None:
    row = {"order_id": "1", "line_no": "2", "sku": "a", "quantity": "1", "price": "1.0000"}
    (gone,) = stored_changes([Change(LINES, "D", row, None, 1, 1)], ChangeTableOptions(headers=HEADERS[:3]))
    assert gone.header["change_mask"] == "18"
    before, _ = stored_changes([UPDATE], ChangeTableOptions())
    assert before.header["change_mask"] == "00"


def test_a_replayed_transaction_is_sent_again_from_its_first_message_k40() -> None:
    history = random_history(7, 40, rows=3)
    one = Delivery(partitions=1, scheme="key")
    once = [m.body for m in render(history, QlikMessageOptions(), one)]
    again = [m.body for m in render(history, QlikMessageOptions(replays=1.0), one)]
    assert set(once) == set(again) and len(again) > len(once) + 40
    repeated = [body for body, count in Counter(again).items() if count > 1]
    firsts = [body for body in once if b'"transactionEventCounter":1,' in body]
    assert set(firsts) <= set(repeated)


@pytest.mark.parametrize(
    "options",
    [
        {"encoding": "json", "framing": "registry"},
        {"encoding": "avro", "framing": "bare"},
        {"encoding": "avro", "table_names": True},
        {"replays": 2},
    ],
)
def test_combinations_that_do_not_exist_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=r"no .* framing|JSON only|between 0 and 1"):
        QlikMessageOptions(**options)
