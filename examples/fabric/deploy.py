"""Deploy the items of ``workspace/`` by fabric-cicd: ``python deploy.py WORKSPACE_ID ENVIRONMENT``.

It unpublishes nothing: a mirrored database that is deleted has to be loaded from scratch.
"""

from __future__ import annotations

import sys
from pathlib import Path


def deploy(workspace_id: str, environment: str) -> None:
    """Publish the mirrored database and the Spark job definition."""
    from azure.identity import DefaultAzureCredential
    from fabric_cicd import FabricWorkspace, publish_all_items  # type: ignore[import-not-found,unused-ignore]

    target = FabricWorkspace(
        workspace_id=workspace_id,
        environment=environment,
        repository_directory=str(Path(__file__).with_name("workspace")),
        item_type_in_scope=["MirroredDatabase", "SparkJobDefinition"],
        token_credential=DefaultAzureCredential(),
    )
    publish_all_items(target)


if __name__ == "__main__":
    deploy(*sys.argv[1:])
