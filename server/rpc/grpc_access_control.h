// The service AccessControl over gRPC's callback API: calls run on the threads of a pool. Thread-safe.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "server/access/audit.h"
#include "server/access/gate.h"
#include "server/access/tokens.h"
#include "server/rpc/thread_pool.h"

namespace legoai::server {

// Owns none of the pointers; all must outlive the service. `gate` may be null: the server asks for no tokens yet; `audit` too:
// there is no audit log.
std::unique_ptr<grpc::Service> MakeAccessControlService(access::Tokens* tokens, access::Gate* gate,
                                                        const access::AuditLog* audit, ThreadPool* pool);

}  // namespace legoai::server
