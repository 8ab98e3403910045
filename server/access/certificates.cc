#include "server/access/certificates.h"

#include <openssl/err.h>

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/metrics/log.h"

namespace legoai::access {
namespace {

// Of the last error, the most specific text; the queue is empty behind it.
std::string SslError() {
  const unsigned long code = ERR_peek_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "unknown" : reason;
}

absl::Status Missing(const char* option, const char* other) {
  return FieldError(option, "", absl::StrCat("is needed beside ", other));
}

}  // namespace

absl::StatusOr<ServerTls::Context> ServerTls::MakeContext(const TlsFiles& files) {
  Context context(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  if (context == nullptr) return absl::InternalError(absl::StrCat("TLS cannot begin: ", SslError()));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()) != 1) {
    return FieldError("--tls_cert", files.certificate,
                      absl::StrCat("is no certificate in PEM that can be read (", SslError(), "): give the server's"));
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context.get()) != 1) {
    return FieldError("--tls_key", files.key,
                      absl::StrCat("cannot be read as the key of --tls_cert in PEM (", SslError(), "): give that one's"));
  }
  return context;
}

absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (!files.given()) {
    if (!files.key.empty()) return Missing("--tls_cert", "--tls_key");
    return files.client_ca.empty() ? absl::OkStatus() : Missing("--tls_cert", "--tls_client_ca");
  }
  if (files.key.empty()) return Missing("--tls_key", "--tls_cert");
  RETURN_IF_ERROR(ServerTls::Load(files).status());
  if (files.client_ca.empty()) return absl::OkStatus();
  const std::unique_ptr<X509_STORE, decltype(&X509_STORE_free)> store(X509_STORE_new(), &X509_STORE_free);
  if (X509_STORE_load_file(store.get(), files.client_ca.c_str()) == 1) return absl::OkStatus();
  return FieldError("--tls_client_ca", files.client_ca,
                    absl::StrCat("cannot be read as certificates in PEM (", SslError(), "): give those that sign agents'"));
}

ServerTls::Times ServerTls::TimesOf(const TlsFiles& files) {
  std::error_code none;
  return {std::filesystem::last_write_time(files.certificate, none), std::filesystem::last_write_time(files.key, none)};
}

absl::StatusOr<std::unique_ptr<ServerTls>> ServerTls::Load(const TlsFiles& files) {
  const Times times = TimesOf(files);
  ASSIGN_OR_RETURN(auto context, MakeContext(files));
  return std::unique_ptr<ServerTls>(new ServerTls(files, std::move(context), times));
}

SSL* ServerTls::NewConnection() {
  const MutexLock lock(mutex_);
  return SSL_new(context_.get());
}

void ServerTls::Refresh() {
  const MutexLock lock(mutex_);
  const Times times = TimesOf(files_);
  if (times == times_) return;
  auto context = MakeContext(files_);
  if (context.ok()) {
    context_ = *std::move(context);
    times_ = times;
    told_.clear();
    return server::LogInfo("takes a new certificate", {}, {{"path", files_.certificate}});
  }
  const std::string trouble(context.status().message());
  if (std::exchange(told_, trouble) != trouble)
    server::LogWarning(absl::StrCat("keeps the certificate that it has: ", trouble));
}

}  // namespace legoai::access
