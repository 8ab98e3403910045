// The service over a real connection on the loopback interface.
#include "server/rpc/grpc_control_plane.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <set>
#include <thread>
#include <vector>

#include "proto/errors.h"
#include "proto/legoai/v1/control_plane.grpc.pb.h"
#include "proto/testing/seeded_random.h"
#include "server/jobs/testing/example_submission.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/testing/grpc_client.h"
#include "server/rpc/testing/test_service.h"

namespace legoai::server {
namespace {

using testing::CallContext;
using testing::ExampleSubmission;
using testing::WatchCall;

constexpr char kNobody[] = "projects/default/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV";

class GrpcControlPlaneTest : public ::testing::Test {
 protected:
  void Start(const GrpcLimits& limits = {}) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
    channel_ = grpc::CreateCustomChannel(service_.StartServer(limits), grpc::InsecureChannelCredentials(), arguments);
    stub_ = v1::ControlPlane::NewStub(channel_);
  }
  absl::Status Create(const v1::CreateJobRequest& request, v1::Job* job) {
    CallContext context;
    return FromGrpcStatus(stub_->CreateJob(&context, request, job));
  }
  // All that a watch sends, to its end.
  absl::Status ReadAll(const std::string& job, std::vector<v1::WatchJobResponse>* all, int64_t after_version = 0) {
    WatchCall watch(stub_.get(), job, after_version);
    while (watch.Read()) all->push_back(watch.response());
    return watch.Finish();
  }
  // A watch more than the server takes.
  void ExpectFull(const std::string& job, const std::string& part) {
    std::vector<v1::WatchJobResponse> all;
    const absl::Status full = ReadAll(job, &all);
    EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
    EXPECT_NE(full.message().find(part), absl::string_view::npos) << full;
    EXPECT_TRUE(RetryDelay(full));
  }
  // After others have left; the job has ended.
  void ExpectIsLetIn(const std::string& job) {
    std::vector<v1::WatchJobResponse> all;
    absl::Status status = ReadAll(job, &all);
    for (int i = 0; i < 12000 && !status.ok(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      status = ReadAll(job, &all);
    }
    EXPECT_TRUE(status.ok()) << status;
  }
  // A message of these bytes, whatever they are.
  grpc::Status CallWithBytes(const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(channel_);
    CallContext context;
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, "/legoai.v1.ControlPlane/" + method, {}, &request, &response,
                   [&](grpc::Status status) { done.set_value(status); });
    return done.get_future().get();
  }

  testing::TestService service_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ControlPlane::Stub> stub_;
};

TEST_F(GrpcControlPlaneTest, CreatesOnceAndRefusesOtherContent) {
  Start();
  v1::Job first, second;
  ASSERT_TRUE(Create(ExampleSubmission("request-1"), &first).ok());
  ASSERT_TRUE(Create(ExampleSubmission("request-1"), &second).ok());
  EXPECT_EQ(first.name(), second.name());
  v1::CreateJobRequest other = ExampleSubmission("request-1");
  other.mutable_spec()->set_display_name("another");
  const absl::Status status = Create(other, &second);
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_EQ(GetFieldViolation(status)->field(), "request_id");
}

TEST_F(GrpcControlPlaneTest, WhatIsWrongArrivesAsData) {
  Start();
  v1::CreateJobRequest request = ExampleSubmission();
  request.mutable_spec()->mutable_recipe()->mutable_training()->set_seq_len(-5);
  v1::Job job;
  absl::Status status = Create(request, &job);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  ASSERT_TRUE(GetFieldViolation(status));
  EXPECT_EQ(GetFieldViolation(status)->field(), "spec.recipe.training.seq_len");
  EXPECT_EQ(GetFieldViolation(status)->value(), "-5");
  v1::ListJobsRequest list;
  list.set_parent("projects/default");
  list.GetReflection()->MutableUnknownFields(&list)->AddVarint(99, 1);
  CallContext context;
  v1::ListJobsResponse jobs;
  status = FromGrpcStatus(stub_->ListJobs(&context, list, &jobs));
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(GetFieldViolation(status)->field(), "#99");
}

TEST_F(GrpcControlPlaneTest, OversizedAndMalformedMessagesHarmNobody) {
  Start();
  v1::CreateJobRequest large = ExampleSubmission();
  large.mutable_spec()->mutable_model()->set_config_json(std::string(5 << 20, 'x'));
  v1::Job job;
  EXPECT_TRUE(absl::IsResourceExhausted(Create(large, &job)));
  SeededRandom random;
  for (int i = 0; i < 100; ++i) {
    std::string bytes(random() % 300, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    for (const char* method : {"CreateJob", "ListJobs", "CancelJob", "Simulate"}) {
      EXPECT_FALSE(CallWithBytes(method, bytes).ok()) << method;
    }
  }
  EXPECT_EQ(CallWithBytes("NoSuchCall", "").error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_TRUE(Create(ExampleSubmission(), &job).ok()) << "it goes on";
}

TEST_F(GrpcControlPlaneTest, AWatchEndsWithTheJob) {
  Start();
  const std::string name = service_.Create().name();
  std::vector<v1::WatchJobResponse> all;
  std::thread watcher([&] { EXPECT_TRUE(ReadAll(name, &all).ok()); });
  service_.Move(name, {v1::PLANNING, v1::QUEUED, v1::LEASED, v1::RUNNING, v1::SUCCEEDED});
  watcher.join();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().job().state(), v1::SUCCEEDED);
  // However they were bundled: each transition once, in order.
  std::vector<v1::JobState> path;
  int64_t version = 0;
  for (const auto& response : all) {
    EXPECT_GT(response.job().version(), version);
    version = response.job().version();
    for (const auto& transition : response.transitions()) path.push_back(transition.to());
  }
  EXPECT_EQ(path, (std::vector<v1::JobState>{v1::SUBMITTED, v1::PLANNING, v1::QUEUED, v1::LEASED, v1::RUNNING, v1::SUCCEEDED}));
  // Of one that is over already: its state, and the end; also for who has seen it.
  for (int64_t after : {int64_t{0}, version}) {
    all.clear();
    EXPECT_TRUE(ReadAll(name, &all, after).ok());
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].job().version(), version);
  }
}

TEST_F(GrpcControlPlaneTest, AWatchResumesAfterARestart) {
  Start();
  const std::string name = service_.Create().name();
  service_.Move(name, {v1::PLANNING});
  WatchCall watch(stub_.get(), name);
  ASSERT_TRUE(watch.Read());
  const int64_t seen = watch.response().job().version();
  service_.StopServer();
  EXPECT_FALSE(watch.Read());
  EXPECT_TRUE(absl::IsUnavailable(watch.Finish()));
  service_.Move(name, {v1::QUEUED, v1::CANCELLED});
  service_.StartServer();
  std::vector<v1::WatchJobResponse> all;
  const absl::Status status = ReadAll(name, &all, seen);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(all.size(), 1u);
  ASSERT_EQ(all[0].transitions_size(), 2);
  EXPECT_EQ(all[0].transitions(0).to(), v1::QUEUED);
}

TEST_F(GrpcControlPlaneTest, WatchesOfNothingAreRefused) {
  Start();
  std::vector<v1::WatchJobResponse> all;
  EXPECT_TRUE(absl::IsNotFound(ReadAll(kNobody, &all)));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadAll("nonsense", &all)));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadAll(service_.Create().name(), &all, -1)));
  EXPECT_TRUE(all.empty());
}

TEST_F(GrpcControlPlaneTest, TwoHundredWatchesSeeTheEnd) {
  Start();
  const std::string name = service_.Create().name();
  std::atomic<int> started = 0, right = 0;
  std::vector<std::thread> watchers;
  for (int i = 0; i < 200; ++i) {
    watchers.emplace_back([&] {
      WatchCall watch(stub_.get(), name);
      if (watch.Read()) ++started;
      while (watch.Read()) {
      }
      if (watch.Finish().ok() && watch.response().job().state() == v1::SUCCEEDED) ++right;
    });
  }
  while (started < 200) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  service_.Move(name, {v1::PLANNING, v1::QUEUED, v1::LEASED, v1::RUNNING});
  for (int step = 1; step <= 20; ++step) service_.Touch(name, [&](v1::Job* job) { job->mutable_progress()->set_step(step); });
  service_.Move(name, {v1::SUCCEEDED});
  for (std::thread& watcher : watchers) watcher.join();
  EXPECT_EQ(right, 200);
}

// A client that does not read, until the connection takes no more, holds up neither other watches nor calls.
TEST_F(GrpcControlPlaneTest, ASlowWatchHoldsUpNobody) {
  Start({.polls_running = 1});
  v1::Job job;
  ASSERT_TRUE(Create(ExampleSubmission(), &job).ok());
  service_.Touch(job.name(), [](v1::Job* it) { it->mutable_chosen()->set_recipe_toml(std::string(200000, 'x')); });
  auto slow_channel = grpc::CreateCustomChannel(service_.address(), grpc::InsecureChannelCredentials(), [] {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, 64 << 20);
    return arguments;
  }());
  auto slow_stub = v1::ControlPlane::NewStub(slow_channel);
  WatchCall slow(slow_stub.get(), job.name());
  ASSERT_TRUE(slow.Read());
  std::vector<v1::WatchJobResponse> all;
  std::thread quick([&] { EXPECT_TRUE(ReadAll(job.name(), &all).ok()); });
  service_.Move(job.name(), {v1::PLANNING, v1::QUEUED, v1::LEASED, v1::RUNNING});
  for (int step = 1; step <= 100; ++step)
    service_.Touch(job.name(), [&](v1::Job* it) { it->mutable_progress()->set_step(step); });
  service_.Move(job.name(), {v1::SUCCEEDED});
  quick.join();
  EXPECT_EQ(all.back().job().state(), v1::SUCCEEDED);
  ASSERT_TRUE(Create(ExampleSubmission(), &job).ok());
  // When it reads at last: a few messages that were under way, and how it stands now.
  int messages = 0;
  while (slow.Read()) ++messages;
  EXPECT_TRUE(slow.Finish().ok());
  EXPECT_EQ(slow.response().job().state(), v1::SUCCEEDED);
  EXPECT_LT(messages, 100);
}

TEST_F(GrpcControlPlaneTest, OneClientCannotTakeAllWatches) {
  Start({.watches_per_client = 2});
  const std::string name = service_.Create().name();
  WatchCall first(stub_.get(), name), second(stub_.get(), name);
  ASSERT_TRUE(first.Read() && second.Read());
  ExpectFull(name, "has 2 watches open, as many as one client may have");
  first.Leave();
  service_.Move(name, {v1::CANCELLED});
  ExpectIsLetIn(name);
  second.Leave();
}

TEST_F(GrpcControlPlaneTest, ClientsThatLeaveAreForgotten) {
  Start({.watches = 2});
  const std::string name = service_.Create().name();
  WatchCall first(stub_.get(), name), second(stub_.get(), name);
  ASSERT_TRUE(first.Read() && second.Read());
  ExpectFull(name, "has 2 watches open, as many as it takes");
  first.Leave();
  second.Leave();
  service_.Move(name, {v1::CANCELLED});
  ExpectIsLetIn(name);
}

v1::SimulateRequest ASimulation() {
  v1::SimulateRequest request;
  request.mutable_request()->mutable_model()->set_name("gpt2");
  auto* cluster = request.mutable_request()->mutable_cluster();
  cluster->set_name("cpu:1x1");
  cluster->set_devices_per_node(1);
  cluster->set_nodes(1);
  auto* device = cluster->mutable_device();
  device->set_type("cpu");
  device->set_kind(v1::CPU);
  device->set_memory_bytes(int64_t{1} << 30);
  device->set_memory_bandwidth_bytes_per_second(1e10);
  device->set_allocation_rounding_bytes(1);
  auto* peak = device->add_peak_flops();
  peak->set_dtype(v1::FLOAT32);
  peak->set_flops_per_second(1e11);
  auto* tier = cluster->add_tiers();
  tier->set_name("node");
  tier->set_group_size(1);
  tier->mutable_link()->set_type("memory");
  tier->mutable_link()->set_bandwidth_bytes_per_second(1e10);
  tier->mutable_link()->set_efficiency(1);
  return request;
}

TEST_F(GrpcControlPlaneTest, WhatIsTooMuchIsRefusedAtOnce) {
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  std::atomic<int> inside = 0;
  service_.fleet().simulate = [&](const v1::SimRequest&, const std::function<bool()>&) -> absl::StatusOr<v1::Estimate> {
    ++inside;
    gone.wait();
    return v1::Estimate();
  };
  Start({.plans_running = 1, .plans_waiting = 1});
  std::atomic<int> done = 0, busy = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    // The first one is under way, so that of the others one waits.
    while (i == 1 && inside == 0 && !HasFailure()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    callers.emplace_back([&] {
      CallContext context;
      v1::Estimate estimate;
      const absl::Status status = FromGrpcStatus(stub_->Simulate(&context, ASimulation(), &estimate));
      if (status.ok()) ++done;
      if (absl::IsResourceExhausted(status) && RetryDelay(status)) ++busy;
      if (!status.ok() && !absl::IsResourceExhausted(status)) ADD_FAILURE() << status;
    });
  }
  while (busy < 6 && done == 0 && !HasFailure()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  v1::Job job;
  EXPECT_TRUE(Create(ExampleSubmission(), &job).ok()) << "other calls go on";
  go.set_value();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done, 2);
  EXPECT_EQ(busy, 6);
}

v1::PlanRequest APlan() {
  v1::PlanRequest request;
  *request.mutable_model() = ASimulation().request().model();
  *request.mutable_cluster() = ASimulation().request().cluster();
  request.set_global_batch(4);
  request.set_seq_len(16);
  return request;
}

TEST_F(GrpcControlPlaneTest, APlanIsStreamed) {
  service_.fleet().plan = [](const v1::PlanRequest& request, const std::function<void(const v1::PlanningProgress&)>& progress,
                             const std::function<bool()>&) -> absl::StatusOr<v1::PlanResult> {
    EXPECT_EQ(request.budget_seconds(), 300);
    EXPECT_EQ(request.base().optimizer().name(), "AdamW");
    for (int i = 0; i < 1000; ++i) {
      v1::PlanningProgress at;
      at.set_captured(i);
      progress(at);
    }
    v1::PlanResult result;
    result.set_explanation("because");
    return result;
  };
  Start();
  CallContext context;
  auto reader = stub_->Plan(&context, APlan());
  v1::PlanResponse response;
  int progress = 0;
  while (reader->Read(&response)) progress += response.has_progress();
  const grpc::Status status = reader->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.result().explanation(), "because");
  EXPECT_GE(progress, 1);
}

TEST_F(GrpcControlPlaneTest, LeavingAPlanEndsIt) {
  std::promise<void> ended;
  service_.fleet().plan = [&](const v1::PlanRequest&, const std::function<void(const v1::PlanningProgress&)>& progress,
                              const std::function<bool()>& cancel) -> absl::StatusOr<v1::PlanResult> {
    progress(v1::PlanningProgress());
    while (!cancel()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ended.set_value();
    return absl::CancelledError("planning was cancelled");
  };
  Start();
  CallContext context;
  auto reader = stub_->Plan(&context, APlan());
  v1::PlanResponse response;
  ASSERT_TRUE(reader->Read(&response));
  context.TryCancel();
  EXPECT_EQ(ended.get_future().wait_for(std::chrono::seconds(120)), std::future_status::ready);
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(GrpcControlPlaneTest, PlansThatCannotBeAreRefused) {
  Start();
  CallContext context;
  v1::PlanRequest request = APlan();
  request.set_global_batch(0);
  auto reader = stub_->Plan(&context, request);
  v1::PlanResponse response;
  EXPECT_FALSE(reader->Read(&response));
  const absl::Status status = FromGrpcStatus(reader->Finish());
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(GetFieldViolation(status)->field(), "global_batch");
}

// One place refuses what no handler should see: also for streams.
TEST_F(GrpcControlPlaneTest, EveryCallIsAdmittedFirst) {
  Start();
  const auto* methods = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName("legoai.v1.ControlPlane");
  ASSERT_NE(methods, nullptr);
  for (int i = 0; i < methods->method_count(); ++i) {
    const grpc::Status status = CallWithBytes(methods->method(i)->name(), "\x98\x06\x01");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << methods->method(i)->name();
    EXPECT_NE(status.error_message().find("#99"), std::string::npos) << methods->method(i)->name() << status.error_message();
  }
}

// However fast a job and a client are.
TEST_F(GrpcControlPlaneTest, AWatchSendsFewMessagesASecondAndTheLatestState) {
  using Clock = std::chrono::steady_clock;
  Start();
  const std::string name = service_.Create().name();
  service_.Move(name, {v1::PLANNING, v1::QUEUED, v1::LEASED, v1::RUNNING});
  const Clock::time_point begun = Clock::now();
  std::vector<v1::WatchJobResponse> all;
  std::thread watcher([&] { EXPECT_TRUE(ReadAll(name, &all).ok()); });
  for (int step = 1; step <= 300; ++step) service_.Touch(name, [&](v1::Job* job) { job->mutable_progress()->set_step(step); });
  service_.Move(name, {v1::SUCCEEDED});
  watcher.join();
  EXPECT_LE(all.size(), 1 + static_cast<size_t>((Clock::now() - begun) / ControlPlane::kMinPollInterval));
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().job().state(), v1::SUCCEEDED);
  EXPECT_EQ(all.back().job().progress().step(), 300);
}

// Every method of the service, once, with nothing in the request: it is counted whatever comes of it.
TEST_F(GrpcControlPlaneTest, EveryCallIsCountedByMethodAndCode) {
  Start();
  const auto* methods = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName("legoai.v1.ControlPlane");
  ASSERT_NE(methods, nullptr);
  for (int i = 0; i < methods->method_count(); ++i) CallWithBytes(methods->method(i)->name(), "");
  v1::Job job;
  ASSERT_TRUE(Create(ExampleSubmission(), &job).ok());
  service_.Move(job.name(), {v1::CANCELLED});
  std::vector<v1::WatchJobResponse> all;
  ASSERT_TRUE(ReadAll(job.name(), &all).ok());
  ASSERT_TRUE(absl::IsNotFound(ReadAll(kNobody, &all)));
  const std::string text = service_.metrics().Text();
  const std::set<std::string> without_need = {"GetServerInfo", "ListProjects", "ListWorkers"};  // an empty request is a good one
  auto counted = [&](const std::string& method, const std::string& code) {
    return text.find("legoai_grpc_requests_total{code=\"" + code + "\",method=\"" + method + "\"} 1\n") != std::string::npos;
  };
  for (int i = 0; i < methods->method_count(); ++i) {
    const std::string method = methods->method(i)->name();
    EXPECT_TRUE(counted(method, without_need.count(method) ? "OK" : "INVALID_ARGUMENT")) << method << "\n" << text;
  }
  EXPECT_TRUE(counted("CreateJob", "OK"));
  EXPECT_TRUE(counted("WatchJob", "OK"));
  EXPECT_TRUE(counted("WatchJob", "NOT_FOUND"));
  const int64_t unary = methods->method_count() - 2 + 1;  // without streams, and the job that was created
  EXPECT_NE(text.find("legoai_grpc_request_seconds_count " + std::to_string(unary) + "\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace legoai::server
