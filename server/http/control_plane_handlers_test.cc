#include "server/http/control_plane_handlers.h"

#include <memory>

#include "gtest/gtest.h"
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
  const auto look = handlers.look_at_job(watch, nullptr);
  ASSERT_TRUE(look.ok()) << look.status();
  ASSERT_TRUE(look->has_value());
  EXPECT_EQ((*look)->job().version(), made.version());
}

}  // namespace
}  // namespace legoai::server
