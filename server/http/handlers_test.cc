#include "server/http/handlers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "core/hardware/catalog.h"
#include "core/model/catalog.h"
#include "gtest/gtest.h"
#include "proto/errors.h"
#include "proto/json/json.h"
#include "proto/json/reflect.h"
#include "proto/testing/assert_ok.h"
#include "server/rpc/testing/test_service.h"

namespace legoai::server {
namespace {

// Every method is called with an empty request over a real store: whatever it says, it is the method's own answer, and a table
// that casts a message to another type would be found by the address sanitizer and by the answers below.
TEST(ControlPlaneHandlers, HasEveryMethodOfTheService) {
  testing::TestService service;
  const Handlers handlers = ControlPlaneHandlers(&service.control(), nullptr);
  const auto* methods = v1::Job::descriptor()->file()->pool()->FindServiceByName("legoai.v1.ControlPlane");
  auto* factory = google::protobuf::MessageFactory::generated_factory();
  for (int i = 0; i < methods->method_count(); ++i) {
    const auto* method = methods->method(i);
    if (method->server_streaming()) {
      EXPECT_TRUE(method->name() == "WatchJob" || handlers.streams.count(method->name())) << method->name();
      continue;
    }
    ASSERT_TRUE(handlers.unary.count(method->name())) << method->name();
    const std::unique_ptr<google::protobuf::Message> request(factory->GetPrototype(method->input_type())->New());
    const std::unique_ptr<google::protobuf::Message> response(factory->GetPrototype(method->output_type())->New());
    const absl::Status status = handlers.unary.at(method->name())(
        *request, [] { return false; }, response.get());
    EXPECT_NE(status.code(), absl::StatusCode::kInternal) << method->name() << ": " << status;
  }
}

TEST(ControlPlaneHandlers, PassesAnswersOn) {
  testing::TestService service;
  const Handlers handlers = ControlPlaneHandlers(&service.control(), nullptr);
  const v1::Job made = service.Create("named");
  v1::GetJobRequest request;
  request.set_name(made.name());
  v1::Job got;
  ASSERT_TRUE(handlers.unary
                  .at("GetJob")(
                      request, [] { return false; }, &got)
                  .ok());
  EXPECT_EQ(got.spec().display_name(), "named");
  v1::WatchJobRequest watch;
  watch.set_name(made.name());
  ASSERT_OK_AND_ASSIGN(const auto look, handlers.poll_job(watch, nullptr));
  ASSERT_TRUE(look.has_value());
  EXPECT_EQ(look->job().version(), made.version());
}

TEST(CatalogJson, HasEveryModelAndDevice) {
  ASSERT_OK_AND_ASSIGN(const auto tree, ParseJsonTree(CatalogJson()));
  EXPECT_EQ(tree["models"].size(), model::Catalog().size());
  ASSERT_EQ(tree["devices"].size(), sim::ListDevices().size());
  const auto& models = tree["models"];
  const auto llama = std::find_if(models.begin(), models.end(), [](const auto& m) { return m["name"] == "llama3-8b"; });
  ASSERT_NE(llama, models.end());
  EXPECT_EQ((*llama)["parameters"], 8'030'261'248) << "as Llama 3.1's model card counts them";
}

TEST(CatalogJson, GivesAClusterByItsName) {
  ASSERT_OK_AND_ASSIGN(const auto json, ClusterJson("h100-sxm-80:8x2"));
  v1::Cluster cluster;
  ASSERT_TRUE(ParseJson(json, &cluster).ok());
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
