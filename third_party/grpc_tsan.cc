// What ThreadSanitizer must not judge: the distribution's gRPC is built without it, so that the order which its locks and queues
// make between threads cannot be seen, and whatever passes through it looks like a race. Reports in which no call of gRPC takes
// part are kept. Called by the sanitizer's runtime alone; without it nothing calls these.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:libgrpc\n"
         "race:libgpr\n"
         "race:grpc::\n"
         "race:grpc_core::\n"
         "deadlock:libgrpc\n";
}

extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }
