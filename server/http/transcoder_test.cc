#include "server/http/transcoder.h"

#include "gtest/gtest.h"
#include "proto/errors.h"
#include "proto/legoai/v1/control_plane.pb.h"

namespace legoai::server {
namespace {

class TranscoderTest : public testing::Test {
 protected:
  static const Transcoder& transcoder() {
    static const Transcoder* const made =
        new Transcoder(*Transcoder::Create(v1::Job::descriptor()->file()->pool()->FindServiceByName("legoai.v1.ControlPlane")));
    return *made;
  }
  static std::string MethodOf(const std::string& http_method, const std::string& path) {
    const auto call = transcoder().Transcode(http_method, path, "", "");
    return call.ok() ? call->method->name() : std::string(call.status().message());
  }
  static std::string FieldOf(const absl::StatusOr<Transcoder::Call>& call) {
    const auto violation = GetFieldViolation(call.status());
    return violation ? violation->field() : "";
  }
};

TEST_F(TranscoderTest, EveryMethodIsReachedByItsPath) {
  const std::string job = "/v1/projects/default/jobs/01J";
  EXPECT_EQ(MethodOf("POST", "/v1/projects/default/jobs"), "CreateJob");
  EXPECT_EQ(MethodOf("GET", "/v1/projects/default/jobs"), "ListJobs");
  EXPECT_EQ(MethodOf("GET", job), "GetJob");
  EXPECT_EQ(MethodOf("GET", job + ":watch"), "WatchJob");
  EXPECT_EQ(MethodOf("POST", job + ":cancel"), "CancelJob");
  EXPECT_EQ(MethodOf("POST", job + ":retry"), "RetryJob");
  EXPECT_EQ(MethodOf("GET", job + "/plan"), "GetPlan");
  EXPECT_EQ(MethodOf("GET", job + "/metrics"), "QueryMetrics");
  EXPECT_EQ(MethodOf("GET", job + "/flightRecord"), "GetFlightRecord");
  EXPECT_EQ(MethodOf("GET", "/v1/projects"), "ListProjects");
  EXPECT_EQ(MethodOf("GET", "/v1/workers"), "ListWorkers");
  EXPECT_EQ(MethodOf("GET", "/v1/workers/w"), "GetWorker");
  EXPECT_EQ(MethodOf("POST", "/v1/workers/w:drain"), "DrainWorker");
  EXPECT_EQ(MethodOf("POST", "/v1/plan"), "Plan");
  EXPECT_EQ(MethodOf("GET", "/v1/server"), "GetServerInfo");
}

TEST_F(TranscoderTest, FillsFieldsFromPathAndQuery) {
  const auto call = transcoder().Transcode("GET", "/v1/projects/default/jobs",
                                           "page_size=7&filter=state+%3D+running%20AND%20display_name%20%3A%20%22a%26b%22", "");
  ASSERT_TRUE(call.ok()) << call.status();
  v1::ListJobsRequest request;
  request.CopyFrom(*call->request);
  EXPECT_EQ(request.parent(), "projects/default");
  EXPECT_EQ(request.page_size(), 7);
  EXPECT_EQ(request.filter(), "state = running AND display_name : \"a&b\"");
}

TEST_F(TranscoderTest, FillsFieldsFromPathAndBody) {
  const auto call =
      transcoder().Transcode("POST", "/v1/projects/default/jobs", "",
                             R"({"spec": {"display_name": "x", "policy": {"priority": 3}}, "request_id": "12345678"})");
  ASSERT_TRUE(call.ok()) << call.status();
  v1::CreateJobRequest request;
  request.CopyFrom(*call->request);
  EXPECT_EQ(request.parent(), "projects/default");
  EXPECT_EQ(request.spec().display_name(), "x");
  EXPECT_EQ(request.spec().policy().priority(), 3);
}

TEST_F(TranscoderTest, NamesTheFieldAtFault) {
  EXPECT_EQ(FieldOf(transcoder().Transcode("GET", "/v1/workers", "page_sise=1", "")), "page_sise");
  EXPECT_EQ(FieldOf(transcoder().Transcode("GET", "/v1/workers", "page_size=many", "")), "page_size");
  EXPECT_EQ(FieldOf(transcoder().Transcode("GET", "/v1/workers", "page_size=1&page_size=2", "")), "page_size");
  EXPECT_EQ(FieldOf(transcoder().Transcode("GET", "/v1/workers/w", "name=workers/v", "")), "name");
  EXPECT_EQ(FieldOf(transcoder().Transcode("GET", "/v1/workers", "filter=%zz", "")), "query");
  EXPECT_EQ(FieldOf(transcoder().Transcode("POST", "/v1/workers/w:drain", "", R"({"name": "workers/v"})")), "name");
  EXPECT_EQ(FieldOf(transcoder().Transcode("POST", "/v1/workers/w:drain", "", R"({"undo": 1})")), "undo");
  EXPECT_EQ(FieldOf(transcoder().Transcode("POST", "/v1/workers/w:drain", "undo=true", "")), "query");
}

TEST_F(TranscoderTest, TellsAnUnknownPathFromAnotherMethod) {
  EXPECT_EQ(transcoder().Transcode("GET", "/v1/nothing", "", "").status().code(), absl::StatusCode::kNotFound);
  const absl::Status other = transcoder().Transcode("DELETE", "/v1/projects/default/jobs", "", "").status();
  EXPECT_EQ(other.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(other.message().find("takes GET, POST"), std::string_view::npos) << other.message();
}

TEST_F(TranscoderTest, BrokenBodiesAreErrors) {
  for (const char* body : {"{", "[]", "null", "{\"undo\": true", "\xff", "{\"undo\": true, \"undo\": false}"}) {
    EXPECT_EQ(transcoder().Transcode("POST", "/v1/workers/w:drain", "", body).status().code(), absl::StatusCode::kInvalidArgument)
        << body;
  }
  EXPECT_TRUE(transcoder().Transcode("POST", "/v1/workers/w:drain", "", "").ok());
}

}  // namespace
}  // namespace legoai::server
