#include "core/trace/annotation.h"

namespace legoai::graph {

Annotation& CurrentAnnotation() {
  static Annotation annotation;
  return annotation;
}

}  // namespace legoai::graph
