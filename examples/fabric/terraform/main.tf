# A workspace, an open mirrored database, and the right to publish there.

terraform {
  required_version = ">= 1.8, < 2.0"
  required_providers {
    fabric = {
      source  = "microsoft/fabric"
      version = "~> 1.0"
    }
  }
}

provider "fabric" {}

variable "capacity" {
  type        = string
  description = "Name of the Fabric capacity, which has to run as long as files are published."
}

variable "publisher" {
  type        = string
  description = "Object id of the service principal that publishes."
}

data "fabric_capacity" "this" {
  display_name = var.capacity
}

resource "fabric_workspace" "this" {
  display_name = "Sales"
  capacity_id  = data.fabric_capacity.this.id
}

resource "fabric_mirrored_database" "shop" {
  display_name = "shop"
  workspace_id = fabric_workspace.this.id
  format       = "Default"
  definition = {
    "mirroring.json" = {
      source = "${path.module}/../workspace/shop.MirroredDatabase/mirroring.json"
    }
  }

  # A database that is made again loses its tables.
  lifecycle {
    prevent_destroy = true
  }
}

# An open mirrored database has no connection to its source. The publisher needs a role instead.
resource "fabric_workspace_role_assignment" "publisher" {
  workspace_id = fabric_workspace.this.id
  principal = {
    id   = var.publisher
    type = "ServicePrincipal"
  }
  role = "Contributor"
}

output "landing_zone" {
  description = "The landing zone as it is set in the mirror file."
  value = {
    store     = "onelake"
    workspace = fabric_workspace.this.id
    item      = fabric_mirrored_database.shop.id
  }
}
