#include "server/http/catalog_json.h"

#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "core/model/model_facts.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/json/json.h"
#include "proto/json/reflect.h"

namespace legoai::server {
namespace {

Tree ModelTree(const v1::Model& model) {
  return {{"name", model.name()},
          {"parameters", model::ParameterCount(model)},
          {"architecture", EnumText(model.architecture())},
          {"max_position_embeddings", model.max_position_embeddings()}};
}

Tree DeviceTree(const v1::Device& device) {
  return {{"type", device.type()},
          {"kind", EnumText(device.kind())},
          {"memory_bytes", device.memory_bytes()},
          {"node_link", device.node_link()},
          {"cluster_link", device.cluster_link()}};
}

}  // namespace

std::string CatalogJson() {
  Tree models = Tree::array(), devices = Tree::array();
  for (const v1::Model& model : model::Catalog()) models.push_back(ModelTree(model));
  for (const v1::Device& device : sim::ListDevices()) devices.push_back(DeviceTree(device));
  return Tree({{"models", models}, {"devices", devices}}).dump();
}

absl::StatusOr<std::string> ClusterJson(const std::string& name) {
  // Only a type of the catalog: ParseCluster would take the path of a file, too.
  const auto device = sim::FindDevice(name.substr(0, name.rfind(':')));
  const auto cluster = device.ok() ? sim::ParseCluster(name) : device.status();
  if (cluster.ok()) return ToJson(*cluster, -1);
  const auto violation = GetFieldViolation(cluster.status());
  if (!violation) return cluster.status();
  return FieldError("cluster", name, violation->remedy());
}

}  // namespace legoai::server
