#include "server/rpc/grpc_access_control.h"

#include <grpcpp/support/server_callback.h>

#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/errors.h"
#include "proto/legoai/v1/access.grpc.pb.h"
#include "proto/status.h"
#include "server/jobs/request_checks.h"
#include "server/metrics/log.h"
#include "server/rpc/admission.h"
#include "server/rpc/grpc_status.h"

namespace legoai::server {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

constexpr int kRunning = 2;
constexpr size_t kWaiting = 100;
constexpr int64_t kRecords = 50, kMostRecords = 1000;
constexpr size_t kMostText = 200;

class Service final : public v1::AccessControl::CallbackService {
 public:
  Service(access::Tokens* tokens, access::Gate* gate, const access::AuditLog* audit, ThreadPool* pool)
      : tokens_(tokens), gate_(gate), audit_(audit), calls_(pool, kRunning, kWaiting) {}

  ServerUnaryReactor* CreateToken(CallbackServerContext* context, const v1::CreateTokenRequest* request,
                                  v1::CreateTokenResponse* response) override {
    return Call("CreateToken", context, request, response, [this, request, response](const access::Identity& who) {
      auto made = tokens_->Create(who, *request);
      if (made.ok()) *response = *std::move(made);
      return Outcome{made.status(), response->token().name()};
    });
  }
  ServerUnaryReactor* ListTokens(CallbackServerContext* context, const v1::ListTokensRequest* request,
                                 v1::ListTokensResponse* response) override {
    return Call("ListTokens", context, request, response, [this, response](const access::Identity& who) {
      auto list = tokens_->List(who);
      if (list.ok()) *response = *std::move(list);
      return Outcome{list.status(), ""};
    });
  }
  ServerUnaryReactor* RevokeToken(CallbackServerContext* context, const v1::RevokeTokenRequest* request,
                                  v1::Token* response) override {
    return Call("RevokeToken", context, request, response, [this, request, response](const access::Identity& who) {
      auto token = tokens_->Revoke(who, *request);
      if (token.ok()) *response = *std::move(token);
      return Outcome{token.status(), request->name()};
    });
  }
  ServerUnaryReactor* ListAuditRecords(CallbackServerContext* context, const v1::ListAuditRecordsRequest* request,
                                       v1::ListAuditRecordsResponse* response) override {
    return Call("ListAuditRecords", context, request, response,
                [this, request, response](const access::Identity&) { return Outcome{Records(*request, response), ""}; });
  }

 private:
  struct Outcome {
    absl::Status status;
    std::string resource;
  };

  template <typename Request, typename Response, typename Handler>
  ServerUnaryReactor* Call(const char* method, CallbackServerContext* context, const Request* request, Response*,
                           Handler handler) {
    ServerUnaryReactor* reactor = context->DefaultReactor();
    const bool taken = calls_.Post([=, this] {
      const std::string call = absl::StrCat("legoai.v1.AccessControl/", method);
      const absl::StatusOr<access::Identity> who = IdentityOf(gate_, *context, call);
      if (!who.ok()) return reactor->Finish(ToGrpcStatus(who.status()));
      Outcome outcome{access::CheckRight(*who, call, request), ""};
      if (outcome.status.ok()) outcome.status = CheckKnown(*request, "");
      if (outcome.status.ok()) outcome = handler(*who);
      LogInfo("call", {}, {{"method", method}, {"way", "grpc"}, {"remote", context->peer()}, {"caller", access::NameOf(*who)}});
      if (gate_ != nullptr) gate_->Record(*who, context->peer(), call, outcome.resource, outcome.status);
      reactor->Finish(ToGrpcStatus(outcome.status));
    });
    if (!taken) reactor->Finish(ToGrpcStatus(BusyError("too many calls about tokens wait on this server", absl::Seconds(1))));
    return reactor;
  }

  absl::Status Records(const v1::ListAuditRecordsRequest& request, v1::ListAuditRecordsResponse* response) const {
    if (request.page_size() < 0 || request.page_size() > kMostRecords)
      return FieldError("page_size", absl::StrCat(request.page_size()), absl::StrCat("must be 0 to ", kMostRecords));
    RETURN_IF_ERROR(CheckText("contains", request.contains(), kMostText));
    if (audit_ == nullptr)
      return absl::FailedPreconditionError("this server asks nobody for a token, so it has no audit log: start it with --tokens");
    const int64_t most = request.page_size() == 0 ? kRecords : request.page_size();
    ASSIGN_OR_RETURN(auto records, audit_->Latest(static_cast<size_t>(most), request.contains()));
    for (v1::AuditRecord& record : records) *response->add_records() = std::move(record);
    return absl::OkStatus();
  }

  access::Tokens* const tokens_;
  access::Gate* const gate_;
  const access::AuditLog* const audit_;
  WorkQueue calls_;
};

}  // namespace

absl::StatusOr<access::Identity> IdentityOf(access::Gate* gate, const grpc::ServerContextBase& context, std::string_view call) {
  if (gate == nullptr) return access::Anybody();
  const std::string client = ClientOf(context.peer());
  const auto [first, last] = context.client_metadata().equal_range("authorization");
  if (first == last) return gate->Enter("", client, call);
  // Of two, a proxy and the server might each take another one.
  if (std::next(first) != last)
    return FieldError("authorization", "", "is there twice: send one token", absl::StatusCode::kUnauthenticated);
  return gate->Enter(access::BearerOf(std::string_view(first->second.data(), first->second.size())), client, call);
}

std::unique_ptr<grpc::Service> MakeAccessControlService(access::Tokens* tokens, access::Gate* gate,
                                                        const access::AuditLog* audit, ThreadPool* pool) {
  return std::make_unique<Service>(tokens, gate, audit, pool);
}

}  // namespace legoai::server
