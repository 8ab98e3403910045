#include "proto/channel.h"

#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/client_interceptor.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/status.h"

namespace legoai {
namespace {

using grpc::experimental::ClientInterceptorFactoryInterface;
using grpc::experimental::ClientRpcInfo;
using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;

constexpr int64_t kMostPemBytes = 1 << 20;

// gRPC's own credentials for calls need TLS, which a server on this machine has no use for.
class TokenSender : public Interceptor {
 public:
  explicit TokenSender(const std::string& value) : value_(value) {}
  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA))
      methods->GetSendInitialMetadata()->emplace("authorization", value_);
    methods->Proceed();
  }

 private:
  const std::string& value_;
};

class TokenSenders : public ClientInterceptorFactoryInterface {
 public:
  explicit TokenSenders(const std::string& token) : value_(absl::StrCat("Bearer ", token)) {}
  Interceptor* CreateClientInterceptor(ClientRpcInfo*) override { return new TokenSender(value_); }

 private:
  const std::string value_;
};

absl::StatusOr<std::string> ReadPem(const std::string& option, const std::string& path) {
  if (path.empty()) return std::string();
  return ReadFileOf(option, path, kMostPemBytes, "name a file of PEM blocks");
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials(const ChannelSecurity& security) {
  if (security.ca.empty()) {
    if (!security.certificate.empty() || !security.key.empty()) {
      return FieldError(security.ca_option, "", "is needed beside a certificate of the caller: whose certificates are trusted");
    }
    return grpc::InsecureChannelCredentials();
  }
  if (security.certificate.empty() != security.key.empty()) {
    return FieldError(security.certificate.empty() ? security.certificate_option : security.key_option, "",
                      "is needed: a certificate and its key go together");
  }
  grpc::SslCredentialsOptions options;
  ASSIGN_OR_RETURN(options.pem_root_certs, ReadPem(security.ca_option, security.ca));
  ASSIGN_OR_RETURN(options.pem_cert_chain, ReadPem(security.certificate_option, security.certificate));
  ASSIGN_OR_RETURN(options.pem_private_key, ReadPem(security.key_option, security.key));
  if (!absl::StrContains(options.pem_root_certs, "BEGIN CERTIFICATE"))
    return FieldError(security.ca_option, security.ca, "has no certificate: name a file of PEM blocks");
  return grpc::SslCredentials(options);
}

}  // namespace

bool IsOnThisMachine(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return absl::StartsWith(address, "unix:") || host == "localhost" || host == "[::1]" ||
         (absl::StartsWith(host, "127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address, const ChannelSecurity& security,
                                                           const grpc::ChannelArguments& arguments) {
  if (!security.token.empty() && security.ca.empty() && !security.insecure && !IsOnThisMachine(address)) {
    return FieldError(security.ca_option, "",
                      absl::StrCat("is needed: the token would go to ", address,
                                   " in clear. Name the file of the certificates to trust, or, where a network of your own keeps "
                                   "others away, give ", security.insecure_option));
  }
  // gRPC ends the process over a value with other bytes.
  const auto is_legal = [](unsigned char byte) { return byte > 0x20 && byte <= 0x7E; };
  if (!std::all_of(security.token.begin(), security.token.end(), is_legal))
    return FieldError("token", "", "has bytes that no token has: give it as `lego token create` printed it, without line ends");
  ASSIGN_OR_RETURN(const auto credentials, Credentials(security));
  std::vector<std::unique_ptr<ClientInterceptorFactoryInterface>> senders;
  if (!security.token.empty()) senders.push_back(std::make_unique<TokenSenders>(security.token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(address, credentials, arguments, std::move(senders));
}

}  // namespace legoai
