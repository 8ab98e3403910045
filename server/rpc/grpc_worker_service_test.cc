// Streams that are no agent's, over real connections: each ends with a status that says why, and a good agent beside it goes on.
#include "server/rpc/grpc_worker_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/legoai/v1/worker_service.grpc.pb.h"
#include "server/fleet/testing/fleet_fixture.h"
#include "server/jobs/request_checks.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/thread_pool.h"

namespace legoai::server {
namespace {

using ::testing::HasSubstr;

v1::FromAgent HelloOf(const std::string& name) {
  v1::FromAgent message;
  *message.mutable_hello() = TestAgent(name).hello;
  return message;
}

v1::FromAgent Heartbeat(int64_t sequence) {
  v1::FromAgent message;
  message.mutable_heartbeat()->set_sequence(sequence);
  return message;
}

v1::FromAgent LogLine(int64_t sequence, size_t bytes) {
  v1::FromAgent message;
  message.mutable_telemetry()->set_sequence(sequence);
  message.mutable_telemetry()->mutable_log()->set_text(std::string(bytes, 'x'));
  return message;
}

grpc::ByteBuffer Bytes(const std::string& of) {
  const grpc::Slice slice(of);
  return grpc::ByteBuffer(&slice, 1);
}

// An agent's stream over a connection of its own; what it sends are bytes, so that they can be any.
class AgentStream {
 public:
  explicit AgentStream(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120));
    const grpc::internal::RpcMethod method("/legoai.v1.WorkerService/Connect", grpc::internal::RpcMethod::BIDI_STREAMING);
    using Factory = grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, v1::ToAgent>;
    stream_.reset(Factory::Create(channel_.get(), method, &context_));
  }
  bool Send(const std::string& bytes) { return stream_->Write(Bytes(bytes)); }
  bool Send(const v1::FromAgent& message) { return Send(message.SerializeAsString()); }
  bool SaysNoMore() { return stream_->WritesDone(); }
  // The next answer for which it holds; an empty one: the stream has ended.
  template <typename Wanted>
  v1::ToAgent Next(Wanted wanted) {
    v1::ToAgent message;
    while (stream_->Read(&message)) {
      if (wanted(message)) return message;
    }
    return v1::ToAgent();
  }
  bool Greet(const std::string& name) {
    Send(HelloOf(name));
    return Next([](const v1::ToAgent& message) { return message.has_welcome(); }).has_welcome();
  }
  // Reads to the end.
  absl::Status End() {
    Next([](const v1::ToAgent&) { return false; });
    return FromGrpcStatus(stream_->Finish());
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, v1::ToAgent>> stream_;
};

class WorkerServiceTest : public FleetTest {
 protected:
  void SetUp() override {
    FleetTest::SetUp();
    service_ = MakeWorkerService(controller_.get(), &pool_, /*writers=*/2);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(kMostRequestBytes);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
    good_ = std::make_unique<AgentStream>(address_);
    ASSERT_TRUE(good_->Greet("good"));
  }
  void TearDown() override {
    v1::FromAgent goodbye;
    goodbye.mutable_goodbye();
    EXPECT_TRUE(good_->Send(goodbye));
    EXPECT_TRUE(good_->SaysNoMore());
    EXPECT_EQ(good_->End(), absl::OkStatus());
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
    service_.reset();
    FleetTest::TearDown();
  }

  void ExpectGoodBeats() {
    ASSERT_TRUE(good_->Send(Heartbeat(++beats_)));
    const auto answer = good_->Next([this](const auto& message) { return message.heartbeat().sequence() == beats_; });
    EXPECT_TRUE(answer.has_heartbeat()) << "the good stream has ended: " << good_->End();
  }
  // It is heard, and what it tells is written.
  void ExpectGoodGoesOn() {
    ExpectGoodBeats();
    ASSERT_TRUE(good_->Send(LogLine(++facts_, 10)));
    const auto answer = good_->Next([this](const auto& message) { return message.telemetry_ack().sequence() == facts_; });
    EXPECT_TRUE(answer.has_telemetry_ack()) << "the good stream has ended: " << good_->End();
  }
  static void ExpectEnd(AgentStream* stream, absl::StatusCode code, const std::string& part) {
    const absl::Status status = stream->End();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }

  ThreadPool pool_{2};
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::unique_ptr<AgentStream> good_;
  int64_t beats_ = 0, facts_ = 0;
};

// Nor does a hello count that comes after it: it would take the good agent's name from it.
TEST_F(WorkerServiceTest, TheFirstMessageMustBeHello) {
  v1::FromAgent commit, goodbye;
  commit.mutable_commit_request()->set_id(1);
  goodbye.mutable_goodbye();
  for (int round = 0; round < 10; ++round) {
    for (const v1::FromAgent& first : {Heartbeat(1), LogLine(1, 10), commit, goodbye, v1::FromAgent()}) {
      AgentStream bad(address_);
      bad.Send(first);
      bad.Send(HelloOf("good"));
      ExpectEnd(&bad, absl::StatusCode::kInvalidArgument, "must be hello");
    }
  }
  ExpectGoodGoesOn();
}

TEST_F(WorkerServiceTest, ASecondHelloOrAnEmptyMessageEndsTheStream) {
  for (const v1::FromAgent& second : {HelloOf("bad"), v1::FromAgent()}) {
    AgentStream bad(address_);
    ASSERT_TRUE(bad.Greet("bad"));
    bad.Send(second);
    ExpectEnd(&bad, absl::StatusCode::kInvalidArgument, "a second hello, or a message without content");
    ExpectGoodGoesOn();
  }
}

TEST_F(WorkerServiceTest, BytesThatAreNoMessageEndTheStream) {
  for (const bool greeted : {false, true}) {
    AgentStream bad(address_);
    if (greeted) {
      ASSERT_TRUE(bad.Greet("bad"));
    }
    bad.Send(std::string("\xff\xff\xff\xff garbage"));
    ExpectEnd(&bad, absl::StatusCode::kInvalidArgument, "bytes that are no message");
    ExpectGoodGoesOn();
  }
}

TEST_F(WorkerServiceTest, AStreamThatEndsWithoutGoodbyeIsToldSo) {
  AgentStream bad(address_);
  ASSERT_TRUE(bad.Greet("bad"));
  bad.SaysNoMore();
  ExpectEnd(&bad, absl::StatusCode::kInvalidArgument, "without a goodbye");
  ExpectGoodGoesOn();
}

TEST_F(WorkerServiceTest, AMessageThatIsTooLargeEndsTheStream) {
  AgentStream bad(address_);
  ASSERT_TRUE(bad.Greet("bad"));
  bad.Send(LogLine(1, kMostRequestBytes));
  ExpectEnd(&bad, absl::StatusCode::kResourceExhausted, "larger than max");
  ExpectGoodGoesOn();
}

// The store stands still: what one agent piles up ends its stream, and others' heartbeats are answered meanwhile.
TEST_F(WorkerServiceTest, AFloodThatCannotBeWrittenEndsTheStream) {
  AgentStream bad(address_);
  ASSERT_TRUE(bad.Greet("bad"));
  store_->hold_writes = true;
  int64_t sent = 0;
  while (sent < 200'000 && bad.Send(LogLine(sent + 1, 10))) ++sent;
  ExpectGoodBeats();
  store_->hold_writes = false;
  ExpectEnd(&bad, absl::StatusCode::kResourceExhausted, "messages wait to be written");
  EXPECT_GT(sent, 10'000) << "a backlog of some seconds is no flood";
  ExpectGoodGoesOn();
}

TEST_F(WorkerServiceTest, OverAnotherStreamNobodyCommitsOrEndsALease) {
  const std::string job = Submit(2);
  const auto start = good_->Next([](const v1::ToAgent& message) { return message.has_start(); }).start();
  ASSERT_EQ(start.lease().job(), job);
  AgentStream bad(address_);
  ASSERT_TRUE(bad.Greet("bad"));
  v1::FromAgent commit, end;
  *commit.mutable_commit_request() = CommitOf(start.lease(), 2);
  end.mutable_telemetry()->set_sequence(1);
  *end.mutable_telemetry()->mutable_lease() = start.lease();
  end.mutable_telemetry()->mutable_ended()->set_last_step(10);
  const auto is_commit = [](const v1::ToAgent& message) { return message.has_commit(); };
  const auto is_ack = [](const v1::ToAgent& message) { return message.has_telemetry_ack(); };
  ASSERT_TRUE(bad.Send(commit));
  const v1::CommitAnswer denied = bad.Next(is_commit).commit();
  EXPECT_FALSE(denied.commit());
  EXPECT_THAT(denied.reason(), HasSubstr("is not this agent's"));
  ASSERT_TRUE(bad.Send(end));
  EXPECT_TRUE(bad.Next(is_ack).has_telemetry_ack());
  EXPECT_FALSE(Get(job).has_committed_step());
  EXPECT_EQ(Get(job).state(), v1::LEASED);
  ASSERT_TRUE(good_->Send(commit));
  EXPECT_TRUE(good_->Next(is_commit).commit().commit());
  ASSERT_TRUE(good_->Send(end));
  EXPECT_TRUE(good_->Next(is_ack).has_telemetry_ack());
  EXPECT_EQ(Get(job).state(), v1::SUCCEEDED);
  facts_ = 1;
  ExpectGoodGoesOn();
}

// A second one of the name, from the same host: it has no trainers, whatever it says, and the first is told so.
TEST_F(WorkerServiceTest, ASecondStreamOfANameTakesNoLeaseOver) {
  AgentStream first(address_), second(address_);
  v1::FromAgent hello = HelloOf("trains");
  hello.mutable_hello()->mutable_worker()->set_pool("other");
  ASSERT_TRUE(first.Send(hello));
  v1::Job made = MakeJob(2);
  made.mutable_spec()->mutable_resources()->set_pool("other");
  Insert({made});
  controller_->JobChanged(made.name());
  const auto start = first.Next([](const v1::ToAgent& message) { return message.has_start(); }).start();
  ASSERT_EQ(start.lease().job(), made.name());
  hello.mutable_hello()->mutable_worker()->set_instance("another process");
  *hello.mutable_hello()->add_leases() = start.lease();
  hello.mutable_hello()->set_last_telemetry(1'000'000);
  ASSERT_TRUE(second.Send(hello));
  const auto revoked = second.Next([](const v1::ToAgent& message) { return message.heartbeat().revoked_size() > 0; });
  EXPECT_EQ(revoked.heartbeat().revoked(0).job(), made.name());
  ExpectEnd(&first, absl::StatusCode::kAborted, "another agent has connected as workers/trains");
  v1::FromAgent commit;
  *commit.mutable_commit_request() = CommitOf(start.lease(), 2);
  ASSERT_TRUE(second.Send(commit));
  EXPECT_FALSE(second.Next([](const v1::ToAgent& message) { return message.has_commit(); }).commit().commit());
  EXPECT_FALSE(Get(made.name()).has_committed_step());
  EXPECT_EQ(Attempts(made.name())[0].state(), "lost");
  ExpectGoodGoesOn();
}

TEST_F(WorkerServiceTest, AnAgentThatDoesNotTakeItsAnswersIsCutOff) {
  AgentStream bad(address_);
  ASSERT_TRUE(bad.Greet("bad"));
  v1::FromAgent beat = Heartbeat(1);
  for (int i = 0; i < 20; ++i) beat.mutable_heartbeat()->add_leases()->set_job(std::string(100, 'j'));  // each is revoked
  int64_t sent = 0;
  while (sent < 200'000 && bad.Send(beat)) ++sent;
  EXPECT_GT(sent, 500);
  ExpectEnd(&bad, absl::StatusCode::kCancelled, "");
  ExpectGoodGoesOn();
}

}  // namespace
}  // namespace legoai::server
