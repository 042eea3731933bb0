"""The section `landing_zone` of a mirror file: where the files for the mirrored database are written.

In OneLake, workspace and item are either both given by GUID or both by name. The name of an item ends with the item's
type. Public source: Microsoft Learn, *Connecting to Microsoft OneLake* (O-01).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Discriminator, Field, StrictBool, Tag, ValidationInfo, field_validator

from open_mirroring.config import names
from open_mirroring.config.section import ConnectionName, FolderSetting, Section
from open_mirroring.landing_zone.layout import PARTNER_NAME
from open_mirroring.landing_zone.onelake_address import DEFAULT_PATH
from open_mirroring.landing_zone.store import why_unsafe

_GUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SUFFIXES = (".mirroreddatabase", ".mountedrelationaldatabase")


def is_guid(text: str) -> bool:
    """Whether *text* is a GUID. A workspace or item that is not given by GUID is given by name (O-01)."""
    return _GUID.fullmatch(text) is not None


class PartnerEvents(Section):
    """The content of ``_partnerEvents.json`` for this mirror (F-06)."""

    partner_name: Annotated[str, Field(min_length=1)] = Field(
        default=PARTNER_NAME, description="Who publishes; the same for all mirrored databases of an organisation."
    )
    source_type: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Kind of the source, in any words. Unset: `source.format`."
    )
    source_version: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Version of the source, in quotes. Unset: none."
    )


class LandingZone(Section):
    """The settings of the landing zone: kind of storage, address, login, and options of the mirrored database."""

    store: Literal["local", "onelake"] = Field(description="Kind of storage: a local folder, or OneLake.")
    path: str = Field(
        default="",
        description="For local: the folder of the landing zone; nothing else may write there. For onelake: the zone's "
        f"folder in the item, by default {DEFAULT_PATH}.",
    )
    workspace: str | None = Field(default=None, description="For onelake: GUID of the workspace, or its name.")
    item: str | None = Field(
        default=None,
        description="For onelake: GUID of the mirrored database, or its name with the suffix .MirroredDatabase, as "
        "`workspace` is given.",
    )
    connection: ConnectionName | None = Field(
        default=None, description="For onelake: name of the connection (type open_mirroring_onelake)."
    )

    partner_events: Annotated[
        Annotated[StrictBool, Tag("(boolean)")] | Annotated[PartnerEvents, Tag("(PartnerEvents)")],
        Discriminator(lambda value: "(PartnerEvents)" if isinstance(value, dict | PartnerEvents) else "(boolean)"),
    ] = Field(
        default=False,
        description="Whether to write _partnerEvents.json at the zone's root: who publishes from what; or "
        "{partner_name: …, source_type: …, source_version: …}. `open-mirroring create` always writes it.",
    )
    retention_days: Annotated[int, Field(strict=True, ge=1, le=30)] | None = Field(
        default=None,
        description="For onelake: days for which the mirrored tables keep removed files, set by `open-mirroring "
        "create`; by default the service decides.",
    )
    change_data_feed: StrictBool | None = Field(
        default=None,
        description="For onelake: whether the mirrored tables have a Delta change data feed, which may cost, set by "
        "`open-mirroring create`.",
    )
    tables: FolderSetting | None = Field(
        default=None,
        description="Where the target's tables can be seen, as `<schema>/<table>`: a folder, or {path: ADDRESS, "
        "connection: NAME}.",
    )

    @field_validator("path")
    @classmethod
    def _path(cls, path: str, info: ValidationInfo) -> str:
        if info.data.get("store") == "onelake":
            path = path or DEFAULT_PATH
            if why_unsafe(path) or not path.startswith("Files/"):
                raise names.unfit("a zone in OneLake is below Files/ of its item", f"leave it out, for {DEFAULT_PATH}")
            return path
        return names.check_path(path) if path or "store" in info.data else path

    @field_validator("workspace", "item", "connection", "retention_days", "change_data_feed")
    @classmethod
    def _of_onelake(cls, value: str | int | None, info: ValidationInfo) -> str | int | None:
        setting, store = info.field_name, info.data.get("store")
        if store == "local" and value is not None:
            raise names.unfit(f"a local landing zone needs no {setting}", f"leave `{setting}` out")
        if not isinstance(value, str | None) or setting in ("retention_days", "change_data_feed"):
            return value
        if store == "onelake" and not value:
            what = f"the setting {setting!r} is missing"
            raise names.unfit(what, f"set it: {cls.model_fields[str(setting)].description}")
        if value and setting != "connection" and (why_unsafe(value) or "/" in value or value != value.strip()):
            raise names.unfit(f"this can be no {setting}", "copy the GUID out of the item's address in the browser")
        return value

    @field_validator("item")
    @classmethod
    def _named_alike(cls, item: str | None, info: ValidationInfo) -> str | None:
        workspace = info.data.get("workspace")
        if not item or not workspace:
            return item
        if is_guid(item) != is_guid(workspace):
            raise names.unfit(
                "one of workspace and item is a GUID, the other a name",
                "name both by GUID, which no renaming breaks, or both by name",
            )
        if not is_guid(item) and not item.casefold().endswith(_SUFFIXES):
            raise names.unfit("an item that is given by name needs the suffix of its type", "append .MirroredDatabase")
        return item

    @property
    def place(self) -> str:
        """The landing zone's path or address, to be shown in messages."""
        return self.path if self.store == "local" else f"{self.workspace}/{self.item}/{self.path}"
