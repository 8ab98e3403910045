// Tokens over real connections: every method with every role, and what stays open when a token ends.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/channel.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/legoai/v1/access.grpc.pb.h"
#include "proto/legoai/v1/control_plane.grpc.pb.h"
#include "proto/testing/assert_ok.h"
#include "server/access/testing/test_users.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/testing/grpc_client.h"
#include "server/rpc/testing/test_service.h"

namespace legoai::server {
namespace {

using testing::CallContext;

class GrpcAccess : public ::testing::Test {
 protected:
  void SetUp() override {
    service_.AskForTokens();
    address_ = service_.StartServer();
  }
  std::shared_ptr<grpc::Channel> ChannelWith(const std::string& secret) {
    auto channel = MakeChannel(address_, {.token = secret}, grpc::ChannelArguments());
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *channel;
  }
  // With which code a method answers a request without any field: by its bytes, as any client could send them.
  grpc::StatusCode CodeOf(const std::shared_ptr<grpc::Channel>& channel, const std::string& method, bool streams,
                          const std::string& bytes) {
    CallContext context;
    grpc::GenericStub stub(channel);
    grpc::CompletionQueue queue;
    const grpc::Slice slice(bytes);
    grpc::ByteBuffer request(&slice, 1), response;
    grpc::Status status;
    const auto wait = [&] {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
      return ok;
    };
    if (streams) {
      auto call = stub.PrepareCall(&context, "/" + method, &queue);
      call->StartCall(nullptr);
      wait();
      call->WriteLast(request, grpc::WriteOptions(), nullptr);
      wait();
      call->Read(&response, nullptr);
      if (wait()) context.TryCancel();  // it was let in
      call->Finish(&status, nullptr);
      wait();
      return status.error_code();
    }
    auto call = stub.PrepareUnaryCall(&context, "/" + method, request, &queue);
    call->StartCall();
    call->Finish(&response, &status, nullptr);
    wait();
    return status.error_code();
  }

  testing::TestService service_;
  std::string address_;
};

// The table of rights itself is tested beside it: here, that no method goes round it.
TEST_F(GrpcAccess, NoMethodAnswersAStrangerOrAnAgent) {
  const auto nobody = ChannelWith(""), agent = ChannelWith(service_.MakeToken(v1::AGENT).secret());
  int methods = 0;
  for (const auto* file : {v1::GetJobRequest::descriptor()->file(), v1::Token::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m, ++methods) {
        const auto* method = file->service(s)->method(m);
        const std::string path = absl::StrCat(file->service(s)->full_name(), "/", method->name());
        EXPECT_EQ(CodeOf(nobody, path, method->server_streaming(), ""), grpc::StatusCode::UNAUTHENTICATED) << path;
        EXPECT_EQ(CodeOf(agent, path, method->server_streaming(), ""), grpc::StatusCode::PERMISSION_DENIED) << path;
      }
    }
  }
  EXPECT_GT(methods, 24);
}

TEST_F(GrpcAccess, AViewerSeesAndSubmitsNothing) {
  const v1::Job job = service_.Create("seen");
  const auto viewer = v1::ControlPlane::NewStub(ChannelWith(service_.MakeToken(v1::VIEWER, "projects/default").secret()));
  v1::GetJobRequest get;
  get.set_name(job.name());
  v1::Job answer;
  {
    CallContext context;
    const grpc::Status status = viewer->GetJob(&context, get, &answer);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_EQ(answer.spec().display_name(), "seen");
  v1::CreateJobRequest create;
  create.set_parent("projects/default");
  *create.mutable_spec() = job.spec();
  CallContext context;
  const absl::Status refused = FromGrpcStatus(viewer->CreateJob(&context, create, &answer));
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "needs editor")) << refused;
  CallContext count;
  v1::ListJobsRequest list;
  v1::ListJobsResponse jobs;
  list.set_parent("projects/default");
  EXPECT_TRUE(viewer->ListJobs(&count, list, &jobs).ok());
  EXPECT_EQ(jobs.jobs_size(), 1);
}

TEST_F(GrpcAccess, JobsOfAnotherProjectAreNotThere) {
  const v1::Job job = service_.Create();
  const auto other = v1::ControlPlane::NewStub(ChannelWith(service_.MakeToken(v1::ADMIN, "projects/other").secret()));
  std::map<std::string, std::string> answers;
  for (const std::string& name : {job.name(), job.name().substr(0, job.name().size() - 1) + "0"}) {
    CallContext context;
    v1::GetJobRequest get;
    get.set_name(name);
    v1::Job answer;
    const absl::Status status = FromGrpcStatus(other->GetJob(&context, get, &answer));
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    answers[GetFieldViolation(status)->remedy()] = name;
  }
  EXPECT_EQ(answers.size(), 1u) << "what is there is answered otherwise than what is not";
}

TEST_F(GrpcAccess, AWatchEndsWithItsToken) {
  const v1::Job job = service_.Create();
  const auto made = service_.MakeToken(v1::VIEWER, "projects/default");
  const auto other = service_.MakeToken(v1::VIEWER, "projects/default");
  const auto stub = v1::ControlPlane::NewStub(ChannelWith(made.secret()));
  const auto others = v1::ControlPlane::NewStub(ChannelWith(other.secret()));
  testing::WatchCall watch(stub.get(), job.name()), stays(others.get(), job.name());
  ASSERT_TRUE(watch.Read());
  ASSERT_TRUE(stays.Read());
  service_.Revoke(made);
  while (watch.Read()) {
  }
  const absl::Status status = watch.Finish();
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  service_.Touch(job.name(), [](v1::Job* changed) { changed->mutable_progress()->set_step(7); });
  EXPECT_TRUE(stays.Read());
  stays.Leave();
}

TEST_F(GrpcAccess, TokensAreMadeAndRevokedOverTheWire) {
  const auto admin = v1::AccessControl::NewStub(ChannelWith(service_.MakeToken(v1::ADMIN, "projects/default").secret()));
  v1::CreateTokenRequest request;
  request.set_role(v1::EDITOR);
  request.set_project("projects/default");
  v1::CreateTokenResponse made;
  {
    CallContext context;
    ASSERT_TRUE(admin->CreateToken(&context, request, &made).ok());
  }
  ASSERT_TRUE(service_.gate().Authenticate(made.secret()).ok());
  {
    CallContext context;
    v1::ListTokensResponse list;
    ASSERT_TRUE(admin->ListTokens(&context, {}, &list).ok());
    EXPECT_EQ(list.tokens_size(), 2);
    EXPECT_EQ(list.DebugString().find("lego_"), std::string::npos);
  }
  {
    CallContext context;
    v1::RevokeTokenRequest revoke;
    revoke.set_name(made.token().name());
    v1::Token revoked;
    ASSERT_TRUE(admin->RevokeToken(&context, revoke, &revoked).ok());
  }
  EXPECT_FALSE(service_.gate().Authenticate(made.secret()).ok());
  CallContext context;
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(99, 1);
  EXPECT_EQ(admin->CreateToken(&context, request, &made).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// What came of it, and not that it was begun.
TEST_F(GrpcAccess, APlanIsWrittenDownWithItsOutcome) {
  const auto made = service_.MakeToken(v1::EDITOR, "projects/default");
  const auto stub = v1::ControlPlane::NewStub(ChannelWith(made.secret()));
  CallContext context;
  const auto reader = stub->Plan(&context, v1::PlanRequest());
  v1::PlanResponse response;
  while (reader->Read(&response)) {
  }
  const absl::Status status = FromGrpcStatus(reader->Finish());
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  const auto records = service_.audit().Latest(10, "ControlPlane/Plan");
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 1u);
  EXPECT_EQ(records->front().outcome(), "INVALID_ARGUMENT");
  EXPECT_EQ(records->front().token(), made.token().name());
}

TEST_F(GrpcAccess, TwoTokensAtOnceAreNone) {
  const auto stub = v1::ControlPlane::NewStub(ChannelWith(service_.MakeToken(v1::VIEWER, "projects/default").secret()));
  CallContext context;
  context.AddMetadata("authorization", absl::StrCat("Bearer ", service_.MakeToken(v1::OPERATOR).secret()));
  v1::ServerInfo info;
  EXPECT_EQ(stub->GetServerInfo(&context, {}, &info).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

// The same door for users whom an OpenID provider vouches for.
class GrpcUsers : public GrpcAccess {
 protected:
  void SetUp() override {
    service_.AskForTokens(&users_.users());
    address_ = service_.StartServer();
  }
  std::unique_ptr<v1::ControlPlane::Stub> StubWith(const std::string& token) {
    return v1::ControlPlane::NewStub(ChannelWith(token));
  }

  const access::TestUsers users_{access::GrantText("lookers", "viewer", "default") +
                                 access::GrantText("lookers", "editor", "other") + access::GrantText("ops", "operator")};
};

TEST_F(GrpcUsers, NoMethodAnswersWhoHasNoRoleOrIsNotVouchedFor) {
  const auto nobody = ChannelWith(users_.Token({"others"}));
  const auto forged = ChannelWith(oidc::TestKey::Ec("e1").Sign(users_.Claims({"ops"})));
  nlohmann::json claims = users_.Claims({"ops"});
  claims["exp"] = claims["exp"].get<int64_t>() - 7200;
  const auto late = ChannelWith(users_.key().Sign(claims));
  int methods = 0;
  for (const auto* file : {v1::GetJobRequest::descriptor()->file(), v1::Token::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m, ++methods) {
        const auto* method = file->service(s)->method(m);
        const std::string path = absl::StrCat(file->service(s)->full_name(), "/", method->name());
        EXPECT_EQ(CodeOf(nobody, path, method->server_streaming(), ""), grpc::StatusCode::PERMISSION_DENIED) << path;
        EXPECT_EQ(CodeOf(forged, path, method->server_streaming(), ""), grpc::StatusCode::UNAUTHENTICATED) << path;
        EXPECT_EQ(CodeOf(late, path, method->server_streaming(), ""), grpc::StatusCode::UNAUTHENTICATED) << path;
      }
    }
  }
  EXPECT_GT(methods, 24);
}

TEST_F(GrpcUsers, AUserDoesWhatTheirGroupsMayAndIsOnRecord) {
  const v1::Job job = service_.Create("seen");
  const auto stub = StubWith(users_.Token({"lookers"}));
  v1::GetJobRequest get;
  get.set_name(job.name());
  v1::Job answer;
  {
    CallContext context;
    const grpc::Status status = stub->GetJob(&context, get, &answer);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  v1::CreateJobRequest create;
  *create.mutable_spec() = job.spec();
  create.set_parent("projects/default");
  {
    CallContext context;
    const absl::Status refused = FromGrpcStatus(stub->CreateJob(&context, create, &answer));
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
    EXPECT_TRUE(absl::StrContains(refused.message(), "users/anna@example.org")) << refused;
  }
  create.set_parent("projects/other");
  {
    CallContext context;
    const grpc::Status status = stub->CreateJob(&context, create, &answer);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  ASSERT_OK_AND_ASSIGN(const auto records, service_.audit().Latest(10, "CreateJob"));
  ASSERT_EQ(records.size(), 2u);
  for (const v1::AuditRecord& record : records) {
    EXPECT_EQ(record.issuer(), oidc::kTestIssuer);
    EXPECT_EQ(record.subject(), "f3a1-anna");
    EXPECT_EQ(record.user(), "anna@example.org");
  }
  EXPECT_EQ(records[0].outcome(), "OK");
  EXPECT_EQ(records[0].role(), v1::EDITOR);
  EXPECT_EQ(records[1].outcome(), "PERMISSION_DENIED");
  EXPECT_EQ(records[1].role(), v1::VIEWER);
}

// gRPC itself would take 8 KiB.
TEST_F(GrpcUsers, ALongTokenArrivesWholeAndALongerOneIsRefusedByName) {
  nlohmann::json claims = users_.Claims({"ops"});
  const auto code = [&](size_t bytes) {
    claims["more"] = std::string(bytes, 'x');
    CallContext context;
    v1::ServerInfo info;
    return FromGrpcStatus(StubWith(users_.key().Sign(claims))->GetServerInfo(&context, {}, &info));
  };
  EXPECT_TRUE(code(11'500).ok()) << code(11'500);
  const absl::Status refused = code(13'000);
  EXPECT_TRUE(absl::IsUnauthenticated(refused)) << refused;
  ASSERT_TRUE(GetFieldViolation(refused)) << refused;
  EXPECT_EQ(GetFieldViolation(refused)->field(), "token: size");
}

TEST_F(GrpcUsers, AWatchEndsWithItsToken) {
  const v1::Job job = service_.Create();
  nlohmann::json claims = users_.Claims({"ops"});
  claims["exp"] = claims["iat"].get<int64_t>() - 45;  // counts fifteen seconds more, of which the first answer may take some
  const auto stub = StubWith(users_.key().Sign(claims));
  testing::WatchCall watch(stub.get(), job.name());
  ASSERT_TRUE(watch.Read());
  while (watch.Read()) {
  }
  const absl::Status status = watch.Finish();
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
}

TEST(MakeChannel, SendsNoTokenInClearToAnotherMachine) {
  const auto field = [](const std::string& address, const ChannelSecurity& security) {
    const auto channel = MakeChannel(address, security, grpc::ChannelArguments());
    const auto violation = GetFieldViolation(channel.status());
    return channel.ok() ? "" : violation ? violation->field() : channel.status().ToString();
  };
  for (const char* address : {"127.0.0.1:1", "127.1.2.3:1", "localhost:1", "[::1]:1", "unix:/tmp/s"})
    EXPECT_EQ(field(address, {.token = "lego_x"}), "") << address;
  for (const char* address : {"10.0.0.1:1", "node-7:1", "127.0.0.1.example:1", "[::2]:1", "0.0.0.0:1"}) {
    EXPECT_EQ(field(address, {.token = "lego_x"}), "--tls-ca") << address;
    EXPECT_EQ(field(address, {}), "") << address;
    EXPECT_EQ(field(address, {.token = "lego_x", .insecure = true}), "") << address;
  }
  EXPECT_EQ(field("node-7:1", {.token = "lego_x", .ca = "/no/such/file"}), "--tls-ca");
  EXPECT_EQ(field("node-7:1", {.certificate = "a", .key = "b"}), "--tls-ca");
}

}  // namespace
}  // namespace legoai::server
