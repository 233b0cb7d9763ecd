/** The package's version, which the build puts in. Sources that run as they are have none. */
declare const PACKAGE_VERSION: string | undefined;

export const VERSION = typeof PACKAGE_VERSION === "undefined" ? "" : PACKAGE_VERSION;
