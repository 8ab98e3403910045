#include "server/http/catalog_json.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "proto/errors.h"
#include "proto/json/json.h"
#include "proto/json/reflect.h"

namespace legoai::server {
namespace {

TEST(CatalogJson, HasEveryModelAndDevice) {
  const auto tree = ParseJsonTree(CatalogJson());
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ((*tree)["models"].size(), model::Catalog().size());
  ASSERT_EQ((*tree)["devices"].size(), sim::ListDevices().size());
  const auto& models = (*tree)["models"];
  const auto llama = std::find_if(models.begin(), models.end(), [](const auto& m) { return m["name"] == "llama3-8b"; });
  ASSERT_NE(llama, models.end());
  EXPECT_EQ((*llama)["parameters"], 8'030'261'248) << "as Llama 3.1's model card counts them";
}

TEST(CatalogJson, GivesAClusterByItsName) {
  const auto json = ClusterJson("h100-sxm-80:8x2");
  ASSERT_TRUE(json.ok()) << json.status();
  v1::Cluster cluster;
  ASSERT_TRUE(ParseJson(*json, &cluster).ok());
  EXPECT_TRUE(sim::CheckCluster(cluster).ok());
  EXPECT_EQ(cluster.devices_per_node() * cluster.nodes(), 16);
}

TEST(CatalogJson, ReadsNoFileAndNamesTheField) {
  for (const char* name : {"/etc/passwd", "mine.txtpb:8x1", "./h100-sxm-80:8", "h100-sxm-80", "h100-sxm-80:0x1",
                           "h100-sxm-80:64x1", "", ":8x1", "unknown:8x1"}) {
    const auto json = ClusterJson(name);
    const auto violation = GetFieldViolation(json.status());
    ASSERT_TRUE(violation) << name;
    EXPECT_EQ(violation->field(), "cluster") << name;
    EXPECT_EQ(violation->value(), name);
  }
}

}  // namespace
}  // namespace legoai::server
