// Who makes a call over gRPC. Thread-safe.
#pragma once

#include <grpcpp/server_context.h>

#include <string_view>

#include "absl/status/statusor.h"
#include "server/access/gate.h"

namespace legoai::server {

// By the metadata `authorization: Bearer SECRET`. `gate` may be null: the server asks for no tokens. `call`: as in
// server/access/rights.h. Errors: those of Gate::Enter.
absl::StatusOr<access::Identity> IdentityOf(access::Gate* gate, const grpc::ServerContextBase& context, std::string_view call);

}  // namespace legoai::server
