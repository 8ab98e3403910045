// Who makes a call over gRPC; and the service AccessControl over gRPC's callback API, whose calls run on the threads of a pool.
// Thread-safe.
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/access/audit.h"
#include "server/access/gate.h"
#include "server/access/tokens.h"
#include "server/rpc/thread_pool.h"

namespace legoai::server {

// By the metadata `authorization: Bearer SECRET`. `gate` may be null: the server asks for no tokens. `call`: as in
// server/access/rights.h. Errors: those of Gate::Enter.
absl::StatusOr<access::Identity> IdentityOf(access::Gate* gate, const grpc::ServerContextBase& context, std::string_view call);

// Owns none of the pointers; all must outlive the service. `gate` may be null: the server asks for no tokens yet; `audit` too:
// there is no audit log.
std::unique_ptr<grpc::Service> MakeAccessControlService(access::Tokens* tokens, access::Gate* gate,
                                                        const access::AuditLog* audit, ThreadPool* pool);

}  // namespace legoai::server
