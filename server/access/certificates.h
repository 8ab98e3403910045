// The server's certificate for TLS, of HTTP and of gRPC. Thread-safe.
#pragma once

#include <openssl/ssl.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/process/mutex.h"

namespace legoai::access {

// Paths of PEM files; all empty: no TLS.
struct TlsFiles {
  std::string certificate;  // with the chain behind it
  std::string key;
  std::string client_ca;  // whose certificates agents must have; empty: they need none
  bool given() const { return !certificate.empty(); }
};

// What stands in the way of a start: FieldErrors of --tls_cert, --tls_key and --tls_client_ca.
absl::Status CheckTlsFiles(const TlsFiles& files);

// What OpenSSL needs for connections that begin, read anew when the files have changed. Files that are changed one after the
// other do not fit together for a moment: meanwhile, and as long as they cannot be read, the ones before go on.
class ServerTls {
 public:
  // Errors: those of CheckTlsFiles.
  static absl::StatusOr<std::unique_ptr<ServerTls>> Load(const TlsFiles& files);

  // For one connection, in the state of the side that accepts; the caller owns it.
  SSL* NewConnection();

  // Looks whether the files have changed; call it every second or so. What is wrong with new files is logged once.
  void Refresh();

 private:
  using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;
  using Times = std::pair<std::filesystem::file_time_type, std::filesystem::file_time_type>;

  ServerTls(TlsFiles files, Context context, Times times)
      : files_(std::move(files)), times_(times), context_(std::move(context)) {}
  static absl::StatusOr<Context> MakeContext(const TlsFiles& files);
  static Times TimesOf(const TlsFiles& files);

  const TlsFiles files_;
  Mutex mutex_;
  Times times_ ABSL_GUARDED_BY(mutex_);  // of the files when they were last looked at
  std::string told_ ABSL_GUARDED_BY(mutex_);
  Context context_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace legoai::access
