// Node: a path, where the glue would make a file: URL and treat it as a path.
if (lnlNode && !Module['locateFile']) {
  Module['locateFile'] = (name) => __dirname + '/' + name;
}
