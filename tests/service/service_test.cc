// What users ask of a service of real processes besides training: plans and simulations, health, workers out of use, and jobs
// that cannot fit.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/sync_stream.h>
#include <signal.h>

#include <sstream>
#include <string>
#include <vector>

#include "proto/legoai/v1/error.pb.h"
#include "tests/service/service_processes.h"
#include "tests/service/service_test_fixture.h"

namespace legoai::service {
namespace {

using cli::testing::Json;
using cli::testing::Result;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class ServiceCallsTest : public ServiceTest {
 protected:
  // The same call, here and with --server: both succeed, and say the same but for the seconds that it took.
  Json ExpectTheSame(std::vector<std::string> call) {
    call.insert(call.end(), {"-o", "json"});
    const Result here = Run(call);
    EXPECT_EQ(here.code, 0) << here.err;
    call.insert(call.end(), {"--server", address()});
    const Result there = Run(call);
    EXPECT_EQ(there.code, 0) << there.err;
    Json said = Json::parse(here.out, nullptr, false), of_server = Json::parse(there.out, nullptr, false);
    for (Json* json : {&said, &of_server}) {
      for (const char* seconds : {"seconds", "capture_seconds", "simulate_seconds"}) json->erase(seconds);
    }
    EXPECT_EQ(said, of_server) << Json::diff(said, of_server).dump(1);
    return said;
  }

  // What a process has said on standard error; each line must be of the kind that is documented.
  std::vector<Json> LogLines(pid_t process) {
    std::vector<Json> lines;
    std::istringstream text(cli::testing::ReadAll(OutputOf(process, "stderr")));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(Json::parse(line, nullptr, false));
      for (const char* field : {"time", "level", "message"}) {
        EXPECT_TRUE(lines.back().is_object() && lines.back().contains(field)) << field << " in " << line;
      }
    }
    return lines;
  }
};

MATCHER_P(Says, part, "") { return arg.value("message", "").find(part) != std::string::npos; }

// All of these fields, with these values.
MATCHER_P(Has, fields, "") {
  for (const auto& [key, value] : fields.items()) {
    if (arg.value(key, Json()) != value) return false;
  }
  return true;
}

TEST_F(ServiceCallsTest, PlansAndSimulationsAreTheSameHereAndOnTheServer) {
  const std::vector<std::string> cases = {"--recipe", Path("recipe.toml"), "--cluster", "cpu:2x1"};
  std::vector<std::string> simulate = {"simulate"}, plan = {"plan",
                                                            "--budget-seconds",
                                                            "0",
                                                            "--rejected",
                                                            "all",
                                                            "--constraint",
                                                            "training.mixed_precision_param=float32",
                                                            "--constraint",
                                                            "parallelism.zero_stage=3",  // a server simulates 64 at most
                                                            "--constraint",
                                                            "parallelism.sequence_parallel_gather_in_backward=false"};
  simulate.insert(simulate.end(), cases.begin(), cases.end());
  const Json estimate = ExpectTheSame(simulate);
  EXPECT_GT(estimate["step_time_seconds"], 0.0);
  plan.insert(plan.end(), cases.begin(), cases.end());
  const Json result = ExpectTheSame(plan);
  EXPECT_EQ(result["not_reached"], 0) << "all was looked at: what comes of it does not depend on time";
  EXPECT_GE(result["captured"], 2);
  EXPECT_GE(result["ranked"].size(), 2u);
}

// With bytes as they are on the wire: those two are gRPC's own services, of which no code is generated here.
TEST_F(ServiceCallsTest, HealthAndReflectionAnswer) {
  using grpc::internal::RpcMethod;
  const auto channel = grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
  const auto text = [](const grpc::ByteBuffer& buffer) {
    grpc::Slice slice;
    return buffer.DumpToSingleSlice(&slice).ok() ? std::string(slice.begin(), slice.end()) : std::string();
  };
  const auto bytes = [](const std::string& of) {
    const grpc::Slice slice(of);
    return grpc::ByteBuffer(&slice, 1);
  };
  grpc::ClientContext context;
  grpc::ByteBuffer answer;
  const grpc::Status health = grpc::internal::BlockingUnaryCall(
      channel.get(), RpcMethod("/grpc.health.v1.Health/Check", RpcMethod::NORMAL_RPC), &context, bytes(""), &answer);
  EXPECT_TRUE(health.ok()) << health.error_message();
  EXPECT_EQ(text(answer), std::string("\x08\x01")) << "field 1, status, is SERVING";

  grpc::ClientContext stream_context;
  const std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> reflection(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
          channel.get(), RpcMethod("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", RpcMethod::BIDI_STREAMING),
          &stream_context));
  EXPECT_TRUE(reflection->Write(bytes(std::string("\x3a\x00", 2)))) << "field 7, list_services";
  grpc::ByteBuffer listed;
  ASSERT_TRUE(reflection->Read(&listed));
  for (const char* service : {"legoai.v1.ControlPlane", "legoai.v1.WorkerService", "grpc.health.v1.Health"}) {
    EXPECT_THAT(text(listed), HasSubstr(service));
  }
  reflection->WritesDone();
  while (reflection->Read(&listed)) {
  }
  const grpc::Status status = reflection->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ServiceCallsTest, AWorkerThatMayEndsItsJobBeforeItLeaves) {
  StartAgent("a", 2);
  const std::string job = Submit(2, 300, 20);
  AwaitCommit(job, 20);
  const Result drained = Run({"workers", "a", "--drain", "--let-finish", "--server", address()});
  EXPECT_EQ(drained.code, 0) << drained.err;
  EXPECT_THAT(drained.out, HasSubstr("draining"));
  const std::string next = Submit(2, 20, 20);
  AwaitSuccess(job);
  EXPECT_EQ(Attempts(job).size(), 1);
  const v1::Job waits =
      Await(next, "a reason", [](const v1::Job& now) { return now.state() != v1::SUBMITTED || !now.reason().empty(); });
  EXPECT_EQ(waits.state(), v1::SUBMITTED);
  EXPECT_THAT(waits.reason(), HasSubstr("no worker of pool default"));
  ASSERT_EQ(Workers().size(), 1);
  EXPECT_EQ(Workers()[0].state(), v1::DRAINING);
  EXPECT_EQ(Workers()[0].used_size(), 0);
  EXPECT_EQ(Run({"workers", "a", "--undrain", "--server", address()}).code, 0);
  AwaitSuccess(next);
}

// And both processes say in JSON what they did, line by line.
TEST_F(ServiceCallsTest, AFailedJobIsRetriedWhenItsCauseIsGone) {
  const auto json = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--server", address(), "-o", "json"});
    const Result result = Run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.out, nullptr, false);
  };
  const pid_t agent = StartAgent("a", 2);
  const std::string failed = Submit(2, 10, 5, 2, Path("late.txt"));
  cli::testing::WaitUntil("its end", [&] { return Get(failed).has_end_time_us(); });
  EXPECT_EQ(json({"get", failed})["state"], "failed");
  cli::testing::Write(Path("late.txt"), cli::testing::ReadAll(Path("text.txt")));
  const std::string job = json({"retry", failed})["name"];
  ASSERT_NE(job, failed);
  AwaitSuccess(job);
  const Json jobs = json({"list"});
  ASSERT_EQ(jobs.size(), 2u);
  for (const Json& told : {jobs[0], json({"get", job})}) {
    EXPECT_EQ(told["name"], job);
    EXPECT_EQ(told["state"], "succeeded");
    EXPECT_EQ(told["retry_of"], failed);
    EXPECT_EQ(told["progress"]["step"], 10);
  }
  EXPECT_EQ(jobs[1]["state"], "failed") << "the one that is tried again stays as it is";
  for (const std::vector<std::string>& call : {std::vector<std::string>{"get", job}, {"list"}}) {
    std::vector<std::string> yaml = call;
    yaml.insert(yaml.end(), {"--server", address(), "-o", "yaml"});
    EXPECT_THAT(Run(yaml).out, AllOf(HasSubstr("name: \"" + job + "\""), HasSubstr("retry_of: \"" + failed + "\"")));
  }
  EXPECT_EQ(Run({"retry", job, "--server", address()}).code, 1) << "it has succeeded";

  const std::vector<Json> of_server = LogLines(server_), of_agent = LogLines(agent);
  const Json of_job = {{"job", job}, {"attempt", 1}, {"epoch", 1}};
  EXPECT_THAT(of_server, Contains(AllOf(Says("leased: "), Has(of_job), Has(Json::object({{"worker", "workers/a"}})))));
  EXPECT_THAT(of_server,
              Contains(AllOf(Says("call"), Has(Json::object({{"method", "RetryJob"}, {"job", failed}, {"way", "grpc"}})))));
  EXPECT_THAT(of_agent, Contains(AllOf(Says("attempt 1 begins"), Has(of_job))));
  for (const int rank : {0, 1})
    EXPECT_THAT(of_agent, Contains(AllOf(Says("is started"), Has(of_job), Has(Json::object({{"rank", rank}})))));
}

// Of four terabytes with its gradients and the optimizer's state.
TEST_F(ServiceCallsTest, AModelThatDoesNotFitIntoTheWorkersMemoryFailsWithTheRemedy) {
  StartAgent("a", 2);
  cli::testing::Write(Path("large.json"), R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256,
      "hidden_size": 65536, "intermediate_size": 262144, "num_hidden_layers": 4, "num_attention_heads": 512,
      "num_key_value_heads": 8, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "tie_word_embeddings": false, "hidden_act": "silu"})");
  const Result submitted = Run({"submit", Path("recipe.toml"), "--wait", "--server", address(),
                                "--model.name=" + Path("large.json"), "--planning.constraints=activation_checkpoint.mode=none"});
  EXPECT_EQ(submitted.code, 1) << submitted.err;
  for (const char* part : {" failed: no recipe fits: Nothing fits. The closest is ", "usable",
                           "a smaller batch, a shorter sequence or fewer constraints would help."}) {
    EXPECT_THAT(submitted.out, HasSubstr(part));
  }
}

// What cannot be is said clearly, and nothing is lost: ports and stores in use, data that agents do not see.
class BadServiceInput : public ServiceTest {
 protected:
  Result StartAnother(const std::string& listen, const std::string& data) {
    return Wait(StartProgram(ServerCommand(listen, data)));
  }
};

TEST_F(BadServiceInput, ASecondServerOnThePortOrTheStoreIsRefusedAndTheFirstGoesOn) {
  const Result port = StartAnother(address(), Path("other"));
  EXPECT_EQ(port.code, 2);
  EXPECT_THAT(port.err, HasSubstr("--listen = " + address()));
  EXPECT_THAT(port.err, HasSubstr("the port is in use"));
  const Result store = StartAnother("127.0.0.1:0", Path("data"));
  EXPECT_EQ(store.code, 2);
  EXPECT_THAT(store.err, HasSubstr("works with it"));
  const Result nonsense = StartAnother("nowhere", Path("other"));
  EXPECT_EQ(nonsense.code, 2);
  EXPECT_THAT(nonsense.err, HasSubstr("--listen = nowhere"));
  EXPECT_EQ(Get(Submit(2, 10, 10)).state(), v1::SUBMITTED);
}

TEST_F(BadServiceInput, DataThatTheAgentDoesNotSeeFailTheJobAndNameTheField) {
  StartAgent("a", 2);
  const std::string job = Submit(2, 10, 10, 1, Path("nothing.txt"));
  cli::testing::WaitUntil("the end of the job", [&] { return Get(job).has_end_time_us(); });
  const v1::Job failed = Get(job);
  EXPECT_EQ(failed.state(), v1::FAILED);
  EXPECT_THAT(failed.reason(), HasSubstr(Path("nothing.txt")));
  v1::FieldViolation violation;
  ASSERT_EQ(failed.outcome().error().details_size(), 1);
  ASSERT_TRUE(failed.outcome().error().details(0).UnpackTo(&violation));
  EXPECT_THAT(violation.field(), HasSubstr("dataset"));
  EXPECT_FALSE(violation.remedy().empty());
  EXPECT_EQ(Attempts(job).size(), 1);
  const Result logs = Run({"logs", job, "--server", address()});
  EXPECT_EQ(logs.code, 0) << logs.err;
  for (const char* part : {"job leased: 2 slots of workers/a", "attempt 1 begins: 2 ranks of workers/a (",
                           "error: attempt 1 has failed: ", "error: job failed: "}) {
    EXPECT_THAT(logs.out, HasSubstr(part));
  }
  EXPECT_THAT(logs.out, HasSubstr(Path("nothing.txt")));
}

}  // namespace
}  // namespace legoai::service
