"""The generator's description of a table, and the four tables of the shop."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

Row = dict[str, str | None]
"""A row: column name to the text SQL Server prints, None for NULL; columns in table order."""

Key = tuple[str, ...]
"""The key values of a row, in the order of the table's key."""


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A column: its name, the full text of its SQL type, and whether it allows NULL."""

    name: str
    sql_type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class TableDef:
    """A table at one time.

    Args:
        columns: columns in table order.
        key: names of the primary key's columns; empty for a table without key, which gets inserts only.
        references: column name → (full table name, column) whose values it uses; not a constraint, so parents may be
            deleted.
    """

    schema: str
    name: str
    columns: tuple[ColumnDef, ...]
    key: tuple[str, ...]
    references: dict[str, tuple[str, str]] = field(default_factory=dict, hash=False)

    @property
    def full_name(self) -> str:
        """``schema.table``."""
        return f"{self.schema}.{self.name}"

    def key_of(self, row: Row) -> Key:
        """The key values of a row.

        Raises:
            ValueError: when a key value is NULL.
        """
        values = [row[name] for name in self.key]
        key = tuple(value for value in values if value is not None)
        if len(key) != len(values):
            raise ValueError(f"NULL in the key of {self.full_name}: {row}")
        return key

    def with_column(self, column: ColumnDef) -> TableDef:
        """The table after ``ALTER TABLE … ADD`` of a nullable column."""
        return replace(self, columns=(*self.columns, column))


def _column(name: str, sql_type: str) -> ColumnDef:
    return ColumnDef(name, sql_type, nullable=False)


CUSTOMERS = TableDef(
    "dbo",
    "customers",
    (
        _column("customer_id", "int"),
        _column("name", "nvarchar(100)"),
        ColumnDef("email", "varchar(200)"),
        _column("credit", "decimal(12,2)"),
        _column("vip", "bit"),
        _column("created_at", "datetime2(7)"),
        _column("guid", "uniqueidentifier"),
    ),
    ("customer_id",),
)
PRODUCTS = TableDef(
    "dbo",
    "products",
    (
        _column("sku", "varchar(20)"),
        _column("title", "nvarchar(200)"),
        _column("price", "decimal(18,4)"),
        ColumnDef("weight", "float"),
        ColumnDef("released", "date"),
    ),
    ("sku",),
)
ORDERS = TableDef(
    "dbo",
    "orders",
    (
        _column("order_id", "bigint"),
        _column("customer_id", "int"),
        _column("status", "varchar(20)"),
        ColumnDef("note", "nvarchar(max)"),
        _column("placed_at", "datetime2(7)"),
    ),
    ("order_id",),
    {"customer_id": ("dbo.customers", "customer_id")},
)
ORDER_LINES = TableDef(
    "dbo",
    "order_lines",
    (
        _column("order_id", "bigint"),
        _column("line_no", "smallint"),
        _column("sku", "varchar(20)"),
        _column("quantity", "int"),
        _column("price", "decimal(18,4)"),
    ),
    ("order_id", "line_no"),
    {"order_id": ("dbo.orders", "order_id"), "sku": ("dbo.products", "sku")},
)
SHOP_TABLES = (CUSTOMERS, PRODUCTS, ORDERS, ORDER_LINES)
"""The shop, parents before children."""
