#include "core/trace/annotation.h"

namespace legoai::graph {

Annotation& CurrentAnnotation() {
  static Annotation annotation;
  return annotation;
}

}  // namespace legoai::graph

namespace legoai::comm {

const char* StreamName(int64_t stream) {
  static const char* const kNames[kStreamCount] = {"compute",   "all_gather",    "reduce_scatter", "replicate",
                                                   "send_next", "recv_previous", "send_previous",  "recv_next",
                                                   "rotate",    "tensor_gather"};
  return stream >= 0 && stream < kStreamCount ? kNames[stream] : "unknown";
}

}  // namespace legoai::comm
