"""Messages of Qlik and Talend tasks as a format."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from open_mirroring.config import Mirror
from open_mirroring.config.connections import resolve
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.contract.announced import Announced
from spark_jobs.sources.contract.decoded import Damage, IndependentMessages, MirroredTable, SourceSchema
from spark_jobs.sources.contract.source import Format
from spark_jobs.sources.qlik.message import announced
from spark_jobs.sources.qlik.message.decoder import DEFAULT_SETTINGS, QlikMessageDecoder, QlikMessageSettings
from spark_jobs.sources.qlik.message.fast_path import FastQlikMessages
from spark_jobs.sources.qlik.positions import SEQUENCE_DIGITS


@dataclass(frozen=True)
class QlikMessageFormat(Format):
    """Data and metadata messages, JSON and Avro."""

    settings: QlikMessageSettings = DEFAULT_SETTINGS
    registry: str | None = None

    has_loads: ClassVar[bool] = True
    joins_pieces: ClassVar[bool] = False

    @classmethod
    def of(cls, mirror: Mirror) -> QlikMessageFormat:
        """The format as a mirror file chooses it."""
        source = mirror.source
        return cls(
            QlikMessageSettings(
                source.load or DEFAULT_SETTINGS.load,
                source.mask_order or "auto",
                {t.topic: ".".join(t.source_name) for t in mirror.tables if t.topic is not None},
                source.binary or "hex",
                source.sequence_digits or SEQUENCE_DIGITS,
                bool(source.unframed_avro),
            ),
            source.schema_registry,
        )

    @property
    def load(self) -> str:
        """As :meth:`Format.load`."""
        return self.settings.load

    @property
    def key_changes(self) -> str:
        """As :meth:`Format.key_changes`."""
        return "told by changeMask or beforeData; an update with neither stops its table (K-60)"

    def decoder(self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()) -> _Decoder:
        """As :meth:`Format.decoder`."""
        return _Decoder(tables, schemas, self.settings)

    def announced(self, messages: Iterable[RawMessage | Damage]) -> Iterator[Announced]:
        """As :meth:`Format.announced`."""
        return announced.announced(messages, self.settings, self._registered)

    def _registered(self, identities: Collection[str]) -> list[SourceSchema]:
        if self.registry is None:
            return []
        # Its client takes as long to load as a look at a source that has nothing new.
        from spark_jobs.sources.qlik.message.schema_registry import SchemaRegistry

        return SchemaRegistry(resolve(self.registry)).schemas(identities)

    def fast_decoder(
        self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()
    ) -> FastQlikMessages:
        """As :meth:`Format.fast_decoder`."""
        return FastQlikMessages(tables, schemas, self.settings)


class _Decoder(IndependentMessages, QlikMessageDecoder):
    """Decodes messages of Qlik tasks."""
